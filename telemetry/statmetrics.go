package telemetry

import "github.com/fencepost-gpu/fencepost/core"

var statMetrics = []definition{
	{name: MetricMemoryBytes, kind: gauge, labels: []string{"state"}, help: "Device memory by state, padding included: live, pending until the device has passed the free, or quarantined by the guard."},
	{name: MetricMemoryRequestedBytes, kind: gauge, labels: []string{"state"}, help: "Device memory by state as callers asked for it."},
	{name: MetricBlocks, kind: gauge, labels: []string{"state"}, help: "Blocks by state."},
	{name: MetricMemoryPeakBytes, kind: gauge, help: "Highest live bytes so far, padding included; what the guard quarantines is not live."},
	{name: MetricMemoryRequestedPeak, kind: gauge, help: "Highest live bytes so far as callers asked for them."},
	{name: MetricMemoryOutstandingPeak, kind: gauge, help: "Highest sum of live, pending and quarantined bytes so far, padding included."},
	{name: MetricBudgetLimitBytes, kind: gauge, help: "Budget of the device, 0 if there is none."},
	{name: MetricBudgetChargedBytes, kind: gauge, help: "Bytes that count against the budget."},
	{name: MetricBudgetClaimedBytes, kind: gauge, help: "Bytes reserved and not yet drawn."},
	{name: MetricBudgetClaims, kind: gauge, help: "Open reservations."},
	{name: MetricBudgetRefusals, kind: counter, help: "Requests that the budget refused and whose callers were told so; what a layer above relieved is left out."},
	{name: MetricPoolReservedBytes, kind: gauge, help: "Bytes that the driver's pool holds of the device, as last read."},
	{name: MetricPoolReservedPeak, kind: gauge, help: "Highest bytes that the driver's pool has held, as last read."},
	{name: MetricPoolUsedBytes, kind: gauge, help: "Bytes that the driver's pool has handed out, as last read."},
	{name: MetricPoolUsedPeak, kind: gauge, help: "Highest bytes that the driver's pool had handed out, as last read."},
	{name: MetricIsolatedBytes, kind: gauge, help: "Device memory mapped for isolated blocks, live and pending, in whole units of mapping; no pool has it."},
	{name: MetricIsolatedPeakBytes, kind: gauge, help: "Highest device memory that was mapped for isolated blocks."},
	{name: MetricIsolatedAddressBytes, kind: gauge, help: "Address space that isolated blocks keep reserved after their free, with no memory there."},
	{name: MetricAllocations, kind: counter, help: "Successful allocations."},
	{name: MetricDeallocations, kind: counter, help: "Successful deallocations."},
	{name: MetricFreeToReusable, kind: histogram, help: "Time from a free's request to the backend until the runtime knew that the device had passed it: late by up to two reap intervals, without the guard's quarantine, and later than reuse in order on the same stream."},
	{name: MetricDriverFailures, kind: counter, help: "Calls that the driver failed."},
	{name: MetricLaunches, kind: counter, help: "Launches finished."},
	{name: MetricLaunchesAborted, kind: counter, help: "Launches aborted: prepared, and nothing enqueued."},
	{name: MetricLaunchesCrossStream, kind: counter, help: "Launches that used a block last written on another stream."},
	{name: MetricWaits, kind: counter, labels: []string{"outcome"}, help: "Dependencies on other streams, by whether a wait was queued or could be elided."},
	{name: MetricIntentsOpen, kind: gauge, help: "Launches prepared and not ended."},
	{name: MetricEvents, kind: gauge, help: "Driver events in existence."},
	{name: MetricBlocksPoisoned, kind: gauge, help: "Blocks that could not be fenced and are out of use until the device is reset."},
	{name: MetricAccountingUnderflows, kind: counter, help: "Attempts to take a byte counter below zero; any is a bug."},
}

// collectStats takes the snapshot and sends all of it.
func (s Source) collectStats(out emitter) {
	st := s.Device.Stats()
	sendAmount(out, st.Live, core.Live)
	sendAmount(out, st.Pending, core.Retired)
	sendAmount(out, st.Quarantined, core.Quarantined)
	sendMemory(out, &st)
	sendActivity(out, &st)
}

func sendAmount(out emitter, a core.Amount, in core.BlockState) {
	state := stateLabel(in)
	out.send(MetricMemoryBytes, a.Bytes, state)
	out.send(MetricMemoryRequestedBytes, a.Requested, state)
	out.send(MetricBlocks, a.Blocks, state)
}

func sendMemory(out emitter, st *core.Stats) {
	out.send(MetricMemoryPeakBytes, st.PeakBytes)
	out.send(MetricMemoryRequestedPeak, st.PeakRequested)
	out.send(MetricMemoryOutstandingPeak, st.PeakOutstanding)
	out.send(MetricBudgetLimitBytes, st.Limit)
	out.send(MetricBudgetChargedBytes, st.Charged)
	out.send(MetricBudgetClaimedBytes, st.Claimed)
	out.send(MetricBudgetClaims, st.Claims)
	out.send(MetricBudgetRefusals, st.Refusals)
	out.send(MetricPoolReservedBytes, st.Reserved)
	out.send(MetricPoolReservedPeak, st.ReservedHigh)
	out.send(MetricPoolUsedBytes, st.PoolUsed)
	out.send(MetricPoolUsedPeak, st.PoolUsedHigh)
	out.send(MetricIsolatedBytes, st.Isolated)
	out.send(MetricIsolatedPeakBytes, st.IsolatedHigh)
	out.send(MetricIsolatedAddressBytes, st.IsolatedAddresses)
}

func sendActivity(out emitter, st *core.Stats) {
	out.send(MetricAllocations, st.Allocations)
	out.send(MetricDeallocations, st.Deallocations)
	out.sendDurations(MetricFreeToReusable, &st.FreeToReusable)
	out.send(MetricDriverFailures, st.Failures)
	out.send(MetricLaunches, st.Launches)
	out.send(MetricLaunchesAborted, st.Aborts)
	out.send(MetricLaunchesCrossStream, st.CrossStream)
	out.send(MetricWaits, st.WaitsQueued, "queued")
	out.send(MetricWaits, st.WaitsElided, "elided")
	out.send(MetricIntentsOpen, st.OpenIntents)
	out.send(MetricEvents, st.Events)
	out.send(MetricBlocksPoisoned, st.Poisoned)
	out.send(MetricAccountingUnderflows, st.Underflows)
}
