package telemetry

import "go.opentelemetry.io/otel/attribute"

// ScopeName is the instrumentation scope of every span of this package.
const ScopeName = "github.com/fencepost-gpu/fencepost/telemetry"

// SpanName is the name of a span. Names carry no identifiers, so that a
// tracing backend can group by them.
type SpanName string

// The spans. See the package comment for their parents and attributes.
const (
	// SpanAlloc covers one allocation.
	SpanAlloc SpanName = "gpumem.alloc"
	// SpanLaunch covers one launch, from its prepare to its end.
	SpanLaunch SpanName = "gpumem.launch"
	// SpanPrepare covers the fencing of one block before a launch.
	SpanPrepare SpanName = "gpumem.prepare"
	// SpanFinish covers the recording of one block's use after a launch.
	SpanFinish SpanName = "gpumem.finish"
	// SpanDealloc covers one deallocation: queueing the free, not waiting
	// for the device to pass it.
	SpanDealloc SpanName = "gpumem.dealloc"
	// SpanFinding is a memory bug, under the launch that is suspected of it.
	// It is also the name of the event on the span of a call that was refused
	// for one.
	SpanFinding SpanName = "gpumem.finding"
	// SpanRefusal is a request for memory that a budget refused, SpanFailure any
	// other call that failed, where the call has no span of its own: because the
	// request is not sampled, or because no span is made of such calls.
	SpanRefusal SpanName = "gpumem.refusal"
	SpanFailure SpanName = "gpumem.failure"
	// SpanCopy covers giving the driver a copy, within its launch; SpanWait the
	// host's wait until the device is done, also with copies.
	SpanCopy SpanName = "gpumem.copy"
	SpanWait SpanName = "gpumem.wait"
	// SpanLayer covers one call that passes into a layer of the stack, where
	// those are asked for; see [Probe].
	SpanLayer SpanName = "gpumem.layer"
)

// The attributes. Numbers are int64, sizes are bytes.
const (
	// AttrDevice is the device's ordinal.
	AttrDevice attribute.Key = "cuda.device.index"
	// AttrStream is the stream that the operation named: the allocation
	// stream of an alloc and dealloc, the launch's stream otherwise.
	AttrStream attribute.Key = "gpumem.stream.id"
	// AttrGeneration identifies the block, as in logs and findings.
	AttrGeneration attribute.Key = "gpumem.generation"
	// AttrGenerations lists the blocks of a span that stands for several.
	AttrGenerations attribute.Key = "gpumem.generations"
	// AttrTag is the tag that the block is accounted under.
	AttrTag attribute.Key = "gpumem.tag"
	// AttrRequested is what the caller asked for, in bytes.
	AttrRequested attribute.Key = "gpumem.block.requested"
	// AttrBytes is the size that the layer below gives the block: with a
	// guard's padding where the backend answers, without it where the guard
	// does.
	AttrBytes attribute.Key = "gpumem.block.bytes"
	// AttrState is the block's state: live, retired, quarantined or freed.
	AttrState attribute.Key = "gpumem.block.state"
	// AttrAccess is what the launch does with the block: read, write or
	// read_write.
	AttrAccess attribute.Key = "gpumem.access"
	// AttrWaitsQueued is the number of waits that were queued.
	AttrWaitsQueued attribute.Key = "gpumem.waits.queued"
	// AttrWaitsElided is the number of dependencies on other streams that
	// needed no wait.
	AttrWaitsElided attribute.Key = "gpumem.waits.elided"
	// AttrLaunchName is the launch's name, absent if it has none.
	AttrLaunchName attribute.Key = "gpumem.launch.name"
	// AttrLaunchID numbers the launch in the process, as in findings.
	AttrLaunchID attribute.Key = "gpumem.launch.id"
	// AttrLaunchUses is the number of distinct blocks the launch uses.
	AttrLaunchUses attribute.Key = "gpumem.launch.uses"
	// AttrCrossStream is true if a block was last written on another stream.
	AttrCrossStream attribute.Key = "gpumem.launch.cross_stream"
	// AttrOutcome is how the launch ended: one of the Outcome constants.
	AttrOutcome attribute.Key = "gpumem.launch.outcome"
	// AttrFindingKind is the kind of a memory bug, AttrFindingSource who saw
	// it, AttrFindingText what happened.
	AttrFindingKind   attribute.Key = "gpumem.finding.kind"
	AttrFindingSource attribute.Key = "gpumem.finding.source"
	AttrFindingText   attribute.Key = "gpumem.finding.text"
	// AttrFindingOffset is where the first bad byte is, from the victim's
	// address, AttrFindingBytes how many there are, AttrFindingExpected and
	// AttrFindingSeen what the first should have been and was, as "0x5f".
	AttrFindingOffset   attribute.Key = "gpumem.finding.offset"
	AttrFindingBytes    attribute.Key = "gpumem.finding.bytes"
	AttrFindingExpected attribute.Key = "gpumem.finding.expected"
	AttrFindingSeen     attribute.Key = "gpumem.finding.seen"
	// AttrFindingSuspects is how many launches may have done it.
	AttrFindingSuspects attribute.Key = "gpumem.finding.suspects"
	// AttrLayer is the layer that a call passed into: one of the Layer
	// constants. AttrOperation is what it was asked, as in logs; on a
	// [SpanFailure] the call that failed.
	AttrLayer     attribute.Key = "gpumem.layer.name"
	AttrOperation attribute.Key = "gpumem.layer.operation"
	// AttrCopyDirection is where a copy goes, such as [core.ToHost], AttrCopyBytes
	// how much it copies. AttrWaitFor is what was waited for: [WaitForStream].
	AttrCopyDirection attribute.Key = "gpumem.copy.direction"
	AttrCopyBytes     attribute.Key = "gpumem.copy.bytes"
	AttrWaitFor       attribute.Key = "gpumem.wait.for"
	// AttrTrace is how much of the span's trace was exported: [core.TraceFull], or
	// [core.TraceEvent] where the request is not sampled.
	AttrTrace attribute.Key = "gpumem.trace"
	// AttrLimit is the budget, AttrRemaining what a request could have had of it,
	// AttrHolders who holds the most, each as in the error's text.
	AttrLimit     attribute.Key = "gpumem.budget.limit"
	AttrRemaining attribute.Key = "gpumem.budget.remaining"
	AttrHolders   attribute.Key = "gpumem.budget.holders"
	// AttrErrorType classifies the failure; it is absent on success.
	AttrErrorType attribute.Key = "error.type"
)

// The values of [AttrOutcome].
const (
	// OutcomeFinished: the work was enqueued and its uses were recorded.
	OutcomeFinished = "finished"
	// OutcomeAborted: nothing was enqueued.
	OutcomeAborted = "aborted"
	// OutcomeRefused: the prepare failed, so there was no launch.
	OutcomeRefused = "refused"
)

// WaitForStream is the value of [AttrWaitFor]: all that was enqueued on the stream
// so far.
const WaitForStream = "stream"

// The values of [AttrLayer], from the outermost to the device.
const (
	LayerGuard  = "guard"
	LayerBudget = "budget"
	LayerLog    = "log"
	// LayerDriver is the backend, which calls the driver.
	LayerDriver = "driver"
)

// MetricName is the name of a Prometheus metric.
type MetricName string

// The metrics. All but those of spans have the label [LabelDevice]; the help
// text that each is exported with says what it means.
const (
	MetricMemoryBytes           MetricName = "gpumem_memory_bytes"
	MetricMemoryRequestedBytes  MetricName = "gpumem_memory_requested_bytes"
	MetricBlocks                MetricName = "gpumem_blocks"
	MetricMemoryPeakBytes       MetricName = "gpumem_memory_peak_bytes"
	MetricMemoryRequestedPeak   MetricName = "gpumem_memory_requested_peak_bytes"
	MetricMemoryOutstandingPeak MetricName = "gpumem_memory_outstanding_peak_bytes"
	MetricMemoryWindowPeak      MetricName = "gpumem_memory_window_peak_bytes"
	MetricBudgetLimitBytes      MetricName = "gpumem_budget_limit_bytes"
	MetricBudgetChargedBytes    MetricName = "gpumem_budget_charged_bytes"
	MetricBudgetClaimedBytes    MetricName = "gpumem_budget_claimed_bytes"
	MetricBudgetClaims          MetricName = "gpumem_budget_claims"
	MetricBudgetRefusals        MetricName = "gpumem_budget_refusals_total"
	MetricPoolReservedBytes     MetricName = "gpumem_pool_reserved_bytes"
	MetricPoolReservedPeak      MetricName = "gpumem_pool_reserved_peak_bytes"
	MetricPoolUsedBytes         MetricName = "gpumem_pool_used_bytes"
	MetricPoolUsedPeak          MetricName = "gpumem_pool_used_peak_bytes"
	MetricDriftBytes            MetricName = "gpumem_drift_bytes"
	MetricDriftReadTimestamp    MetricName = "gpumem_drift_read_timestamp_seconds"
	MetricDeviceFreeBytes       MetricName = "gpumem_device_free_bytes"
	MetricDeviceTotalBytes      MetricName = "gpumem_device_total_bytes"
	MetricDeviceForeignBytes    MetricName = "gpumem_device_foreign_bytes"
	MetricDeviceHeldBytes       MetricName = "gpumem_device_held_bytes"
	MetricDeviceInfo            MetricName = "gpumem_device_info"
	MetricDeviceReadTimestamp   MetricName = "gpumem_device_read_timestamp_seconds"
	MetricIsolatedBytes         MetricName = "gpumem_isolated_bytes"
	MetricIsolatedPeakBytes     MetricName = "gpumem_isolated_peak_bytes"
	MetricIsolatedAddressBytes  MetricName = "gpumem_isolated_address_bytes"
	MetricAllocations           MetricName = "gpumem_allocations_total"
	MetricDeallocations         MetricName = "gpumem_deallocations_total"
	MetricFreeToReusable        MetricName = "gpumem_free_to_reusable_seconds"
	MetricDriverFailures        MetricName = "gpumem_driver_failures_total"
	MetricLaunches              MetricName = "gpumem_launches_total"
	MetricLaunchesAborted       MetricName = "gpumem_launches_aborted_total"
	MetricLaunchesCrossStream   MetricName = "gpumem_launches_cross_stream_total"
	MetricWaits                 MetricName = "gpumem_waits_total"
	MetricIntentsOpen           MetricName = "gpumem_intents_open"
	MetricEvents                MetricName = "gpumem_events"
	MetricBlocksPoisoned        MetricName = "gpumem_blocks_poisoned"
	MetricAccountingUnderflows  MetricName = "gpumem_accounting_underflows_total"
	MetricTagBytes              MetricName = "gpumem_tag_bytes"
	MetricTagBlocks             MetricName = "gpumem_tag_blocks"
	MetricOperations            MetricName = "gpumem_operations_total"
	MetricOperationDuration     MetricName = "gpumem_operation_duration_seconds"
	MetricRefusals              MetricName = "gpumem_refusals_total"
	MetricEventSpansDropped     MetricName = "gpumem_event_spans_dropped_total"
	MetricStreams               MetricName = "gpumem_streams"
	MetricStreamsLimit          MetricName = "gpumem_streams_limit"
	MetricStreamsWaiting        MetricName = "gpumem_streams_waiting"
	MetricStreamAcquisitions    MetricName = "gpumem_stream_acquisitions_total"
	MetricStreamRefusals        MetricName = "gpumem_stream_refusals_total"
	MetricStreamWaitSeconds     MetricName = "gpumem_stream_wait_seconds_total"
	MetricStreamOldestLease     MetricName = "gpumem_stream_oldest_lease_seconds"
	MetricFindings              MetricName = "gpumem_findings_total"
	MetricGuardMode             MetricName = "gpumem_guard_mode"
	MetricGuardQuarantineBytes  MetricName = "gpumem_guard_quarantine_bytes"
	MetricGuardQuarantineBlocks MetricName = "gpumem_guard_quarantine_blocks"
	MetricGuardEvents           MetricName = "gpumem_guard_events_total"
	MetricGuardState            MetricName = "gpumem_guard_state"
	MetricIncidents             MetricName = "gpumem_incidents_total"
	MetricHistoryRecords        MetricName = "gpumem_history_records_total"
	MetricHistoryCapacity       MetricName = "gpumem_history_capacity"
	MetricBuildInfo             MetricName = "gpumem_build_info"
	MetricStartTime             MetricName = "gpumem_runtime_start_time_seconds"
	MetricLogDropped            MetricName = "gpumem_log_records_dropped_total"
	MetricRecordersDropped      MetricName = "gpumem_recorders_dropped_total"
	MetricHealth                MetricName = "gpumem_health"
	MetricHealthReasons         MetricName = "gpumem_health_reasons"
	MetricStickyErrors          MetricName = "gpumem_sticky_errors_total"
	MetricDeviceLost            MetricName = "gpumem_device_lost"
	MetricDumps                 MetricName = "gpumem_dumps_total"
	MetricSpansStarted          MetricName = "gpumem_spans_started_total"
	MetricSpansEnded            MetricName = "gpumem_spans_ended_total"
	MetricSpansExported         MetricName = "gpumem_spans_exported_total"
	MetricSpansFailed           MetricName = "gpumem_spans_failed_total"
	MetricSpansDropped          MetricName = "gpumem_spans_dropped_total"
	MetricSpansUnexported       MetricName = "gpumem_spans_unexported"
)
