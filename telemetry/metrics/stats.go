package metrics

import (
	"iter"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/blocks"
)

var statMetrics = []family[core.Stats]{
	{gauge("gpumem_memory_bytes", "Device memory by state, padding included: live, pending until the device has passed the free, or quarantined by the guard.", "state"), byState(func(a core.Amount) uint64 { return a.Bytes })},
	{gauge("gpumem_memory_requested_bytes", "Device memory by state as callers asked for it.", "state"), byState(func(a core.Amount) uint64 { return a.Requested })},
	{gauge("gpumem_blocks", "Blocks by state.", "state"), byState(func(a core.Amount) uint64 { return a.Blocks })},
	{gauge("gpumem_memory_peak_bytes", "Highest live bytes so far, padding included, or, with more than 64 streams or under load, up to a 64th or 32 MiB more; what the guard quarantines is not live."), whole(func(s core.Stats) uint64 { return s.PeakBytes })},
	{gauge("gpumem_memory_requested_peak_bytes",
		"Highest live bytes so far as callers asked for them, as exact as gpumem_memory_peak_bytes."),
		whole(func(s core.Stats) uint64 { return s.PeakRequested })},
	{gauge("gpumem_memory_outstanding_peak_bytes",
		"Highest sum of live, pending and quarantined bytes so far, padding included, as exact as gpumem_memory_peak_bytes."), whole(func(s core.Stats) uint64 { return s.PeakOutstanding })},
	{gauge("gpumem_budget_limit_bytes", "Budget of the device, 0 if there is none: what was set or, of a GPU, what was free at first, and never more than others allow."), whole(func(s core.Stats) uint64 { return s.Limit })},
	{gauge("gpumem_budget_charged_bytes", "Bytes that count against the budget."), whole(func(s core.Stats) uint64 { return s.Charged })},
	{gauge("gpumem_budget_claimed_bytes", "Bytes reserved and not yet drawn."), whole(func(s core.Stats) uint64 { return s.Claimed })},
	{gauge("gpumem_budget_claims", "Open reservations."), whole(func(s core.Stats) uint64 { return s.Claims })},
	{counter("gpumem_budget_refusals_total", "Requests that the budget refused and whose callers were told so; what a layer above relieved is left out."), whole(func(s core.Stats) uint64 { return s.Refusals })},
	{counter("gpumem_memory_waits_total", "Requests that waited for the device to come to memory that is freed instead of being refused at once, by whether they got theirs.", "outcome"), func(s core.Stats, out sender) {
		out.count(s.MemoryWaitsServed, "served")
		out.count(s.MemoryWaits-min(s.MemoryWaits, s.MemoryWaitsServed), "refused")
	}},
	{counter("gpumem_memory_wait_seconds_total", "Time that those requests waited."), func(s core.Stats, out sender) { out.send(s.MemoryWaitTime.Seconds()) }},
	{gauge("gpumem_held_limit_bytes", "Bytes of the device that the pool and isolated blocks may hold together: the budget where one is set, in whole pages, and at least one page for each stream that allocates; 0 for no limit."), whole(func(s core.Stats) uint64 { return s.HeldLimit })},
	{gauge("gpumem_pool_reserved_bytes", "Bytes that the pool holds of the device; of the driver's pool as last read."), whole(func(s core.Stats) uint64 { return s.Reserved })},
	{gauge("gpumem_pool_reserved_peak_bytes", "Highest bytes that the pool has held; of the driver's pool as last read."), whole(func(s core.Stats) uint64 { return s.ReservedHigh })},
	{gauge("gpumem_pool_used_bytes", "Bytes that the pool has handed out; of the driver's pool as last read."), whole(func(s core.Stats) uint64 { return s.PoolUsed })},
	{gauge("gpumem_pool_used_peak_bytes", "Highest bytes that the pool had handed out; of the driver's pool as last read, of the runtime's own the highest of the samples."), whole(func(s core.Stats) uint64 { return s.PoolUsedHigh })},
	{gauge("gpumem_pool_cached_bytes", "Bytes that the pool holds of the device and that are in no block; of the driver's pool as last read."), whole(func(s core.Stats) uint64 { return s.Cached })},
	{gauge("gpumem_pool_fragmented_bytes", "Cached bytes beside blocks, in no wholly free page; of the runtime's own pool alone."), ofOwnPool(func(p *core.OwnPoolStats, out sender) { out.count(p.Fragmented) })},
	{gauge("gpumem_pool_limit_bytes", "Bytes that the pool may hold, the less of its own limit and of what may be held in all, 0 for no limit; of the runtime's own pool alone."), ofOwnPool(func(p *core.OwnPoolStats, out sender) { out.count(p.Limit) })},
	{counter("gpumem_pool_moves_total", "Moves of pages from stream to stream, to other addresses, from the device and back to it; of the runtime's own pool alone.", "move"), ofMoves(func(m core.PoolMoves) uint64 { return m.Count })},
	{counter("gpumem_pool_moved_bytes_total", "Bytes of pages that were moved; of the runtime's own pool alone.", "move"), ofMoves(func(m core.PoolMoves) uint64 { return m.Bytes })},
	{counter("gpumem_pool_move_seconds_total", "Time that moves of pages took on the host, but for takeovers, which are not timed; of the runtime's own pool alone.", "move"), ofOwnPool(sendMoveTimes)},
	{gauge("gpumem_isolated_bytes", "Device memory mapped for isolated blocks, live and pending, in whole units of mapping; no pool has it."), whole(func(s core.Stats) uint64 { return s.Isolated })},
	{gauge("gpumem_isolated_peak_bytes", "Highest device memory that was mapped for isolated blocks."), whole(func(s core.Stats) uint64 { return s.IsolatedHigh })},
	{gauge("gpumem_isolated_address_bytes", "Address space that isolated blocks keep reserved after their free, with no memory there."), whole(func(s core.Stats) uint64 { return s.IsolatedAddresses })},
	{counter("gpumem_allocations_total", "Successful allocations."), whole(func(s core.Stats) uint64 { return s.Allocations })},
	{counter("gpumem_allocated_bytes_total", "Bytes of successful allocations, padding and what the guard allocates for itself included."), whole(func(s core.Stats) uint64 { return s.AllocatedBytes })},
	{counter("gpumem_deallocations_total", "Successful deallocations."), whole(func(s core.Stats) uint64 { return s.Deallocations })},
	{histogram("gpumem_free_to_reusable_seconds", "Time from a free's request to the backend until the runtime knew that the device had passed it: late by up to two reap intervals, without the guard's quarantine, and later than reuse in order on the same stream."), func(s core.Stats, out sender) { out.durations(&s.FreeToReusable) }},
	{counter("gpumem_driver_failures_total", "Calls that the driver failed."), whole(func(s core.Stats) uint64 { return s.Failures })},
	{counter("gpumem_launches_total", "Launches finished."), whole(func(s core.Stats) uint64 { return s.Launches })},
	{counter("gpumem_launches_aborted_total", "Launches aborted: prepared, and nothing enqueued."), whole(func(s core.Stats) uint64 { return s.Aborts })},
	{counter("gpumem_launches_cross_stream_total", "Launches that used a block last written on another stream."), whole(func(s core.Stats) uint64 { return s.CrossStream })},
	{counter("gpumem_waits_total", "Dependencies on other streams, by whether a wait was queued or could be elided.", "outcome"), sendWaits},
	{gauge("gpumem_intents_open", "Launches prepared and not ended, and other work under way on streams."), whole(func(s core.Stats) uint64 { return s.OpenIntents })},
	{gauge("gpumem_events", "Driver events in existence."), whole(func(s core.Stats) uint64 { return s.Events })},
	{gauge("gpumem_blocks_poisoned", "Blocks that could not be fenced and are out of use until the device is reset."), whole(func(s core.Stats) uint64 { return s.Poisoned })},
	{counter("gpumem_accounting_underflows_total", "Attempts to take a byte counter below zero; any is a bug."), whole(func(s core.Stats) uint64 { return s.Underflows })},
}

// byState is the samples of what amounts there are in each state.
func byState(read func(core.Amount) uint64) func(core.Stats, sender) {
	return func(s core.Stats, out sender) {
		out.count(read(s.Live), blocks.StateName(core.Live))
		out.count(read(s.Pending), blocks.StateName(core.Retired))
		out.count(read(s.Quarantined), blocks.StateName(core.Quarantined))
	}
}

func sendWaits(s core.Stats, out sender) {
	out.count(s.WaitsQueued, "queued")
	out.count(s.WaitsElided, "elided")
}

// ofOwnPool is the samples of what only a pool of the runtime's own has: none otherwise.
func ofOwnPool(samples func(*core.OwnPoolStats, sender)) func(core.Stats, sender) {
	return func(s core.Stats, out sender) {
		if s.OwnPool.Present {
			samples(&s.OwnPool, out)
		}
	}
}

// ofMoves is the samples of a count by the kind of move.
func ofMoves(read func(core.PoolMoves) uint64) func(core.Stats, sender) {
	return ofOwnPool(func(p *core.OwnPoolStats, out sender) {
		out.count(read(p.Takeovers), "takeover")
		for name, moves := range timedMoves(p) {
			out.count(read(moves), name)
		}
	})
}

func sendMoveTimes(p *core.OwnPoolStats, out sender) {
	for name, moves := range timedMoves(p) {
		out.send(moves.Time.Seconds(), name)
	}
}

func timedMoves(p *core.OwnPoolStats) iter.Seq2[string, core.PoolMoves] {
	return func(yield func(string, core.PoolMoves) bool) {
		_ = yield("steal", p.Steals) && yield("remap", p.Remaps) && yield("growth", p.Growths) && yield("trim", p.Trims)
	}
}
