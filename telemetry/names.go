package telemetry

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/fencepost-gpu/fencepost/internal/usercode"
	"github.com/fencepost-gpu/fencepost/internal/version"
)

// ScopeName is the instrumentation scope of every span of this package.
const ScopeName = "github.com/fencepost-gpu/fencepost/telemetry"

// tracerOf is the tracer of this package's spans: the one place that calls the provider's. If the
// provider panics, its spans do not record.
func tracerOf(p trace.TracerProvider) trace.Tracer {
	var t trace.Tracer = noop.Tracer{}
	usercode.Call(tracerCode, func() {
		t = p.Tracer(ScopeName, trace.WithInstrumentationVersion(version.Fencepost()),
			trace.WithSchemaURL(semconv.SchemaURL))
	})
	return guardedTracer{t}
}

// SpanName is an operation: what a span's name begins with, and the value of [AttrSpanOperation].
// Behind it stands the target, if there is one, such as "gpumem.launch merge". Names carry
// no identifiers and few targets, so that a tracing backend can group by them; see the package comment.
type SpanName string

// on is the name of the operation's span with a target, such as exporters can encode.
func (n SpanName) on(target string) string {
	return string(n) + " " + strings.ToValidUTF8(target, "\uFFFD")
}

// The spans. See the package comment for their parents and attributes.
const (
	// SpanJob covers one job, from its wait for a reservation and a stream until all is given back. It has the job's bill.
	SpanJob SpanName = "gpumem.job"
	// SpanAlloc covers one allocation, SpanDealloc one deallocation: queueing the free,
	// not waiting for the device to pass it.
	SpanAlloc   SpanName = "gpumem.alloc"
	SpanDealloc SpanName = "gpumem.dealloc"
	// SpanLaunch covers one launch, from its prepare to its end; SpanPrepare the fencing
	// of one block before it, SpanFinish the recording of one block's use after it.
	SpanLaunch  SpanName = "gpumem.launch"
	SpanPrepare SpanName = "gpumem.prepare"
	SpanFinish  SpanName = "gpumem.finish"
	// SpanDevice covers a launch on the device, from when its last wait was over until its work was done.
	SpanDevice SpanName = "gpumem.device"
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
	// AttrSpanOperation is the operation, without a target: one of the Span constants.
	AttrSpanOperation attribute.Key = "gpumem.operation"
	// AttrDevice is the device's ordinal. AttrStream is the stream that the operation
	// named: the allocation stream of an alloc and dealloc, the launch's otherwise.
	AttrDevice attribute.Key = "cuda.device.index"
	AttrStream attribute.Key = "gpumem.stream.id"
	// AttrGeneration identifies the block, as in logs and findings; AttrGenerations
	// lists the blocks of a span that stands for several.
	AttrGeneration  attribute.Key = "gpumem.generation"
	AttrGenerations attribute.Key = "gpumem.generations"
	// AttrTag is the tag that the block is accounted under.
	AttrTag attribute.Key = "gpumem.tag"
	// AttrRequested is what the caller asked for, AttrBytes the size that the layer
	// below gives the block: with a guard's padding where the backend answers, without
	// it where the guard does.
	AttrRequested attribute.Key = "gpumem.block.requested"
	AttrBytes     attribute.Key = "gpumem.block.bytes"
	// AttrState is the block's state: live, retired, quarantined or freed.
	AttrState attribute.Key = "gpumem.block.state"
	// AttrAccess is what the launch does with the block: read, write or
	// read_write.
	AttrAccess attribute.Key = "gpumem.access"
	// AttrWaitsQueued is how many waits were queued, AttrWaitsElided how many
	// dependencies on other streams needed none.
	AttrWaitsQueued attribute.Key = "gpumem.waits.queued"
	AttrWaitsElided attribute.Key = "gpumem.waits.elided"
	// AttrLaunchName is the launch's name, absent if it has none; AttrLaunchID numbers
	// the launch in the process, as in findings; AttrLaunchUses is how many distinct
	// blocks it uses. AttrCrossStream is true if one was last written on another
	// stream. AttrOutcome is how the launch ended: one of the Outcome constants.
	AttrLaunchName  attribute.Key = "gpumem.launch.name"
	AttrLaunchID    attribute.Key = "gpumem.launch.id"
	AttrLaunchUses  attribute.Key = "gpumem.launch.uses"
	AttrCrossStream attribute.Key = "gpumem.launch.cross_stream"
	AttrOutcome     attribute.Key = "gpumem.launch.outcome"
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
	// AttrCopyDirection is where a copy goes, such as "to_host", AttrCopyBytes
	// how much it copies. AttrWaitFor is what was waited for: [WaitForStream] or
	// [WaitForMemory], of which AttrBytes then says how much was asked for.
	AttrCopyDirection attribute.Key = "gpumem.copy.direction"
	AttrCopyBytes     attribute.Key = "gpumem.copy.bytes"
	AttrWaitFor       attribute.Key = "gpumem.wait.for"
	// AttrQueued is how long a launch stood on the device's queue behind its own stream, from when the host
	// queued its waits, AttrHeld how long it was held up by waits for other streams, and AttrHeldBy by
	// which, in words. AttrClockError is how far the span's times may be from the host's clock.
	AttrQueued     attribute.Key = "gpumem.device.queued"
	AttrHeld       attribute.Key = "gpumem.device.held"
	AttrHeldBy     attribute.Key = "gpumem.device.held_by"
	AttrClockError attribute.Key = "gpumem.device.clock_error"
	// AttrPeakRequested and AttrPeakBytes are the most that was live at once of a job, as asked for and with
	// padding, AttrByteSeconds what it took of the memory in bytes times seconds, AttrAllocatedBytes and
	// AttrAllocatedBlocks all that it allocated. AttrReserved is its reservation, and AttrUnusedByteSeconds what was
	// not live of that. AttrPredicted is what was learned that it would need.
	AttrPeakRequested     attribute.Key = "gpumem.job.peak.requested"
	AttrPeakBytes         attribute.Key = "gpumem.job.peak.bytes"
	AttrByteSeconds       attribute.Key = "gpumem.job.byte_seconds"
	AttrAllocatedBytes    attribute.Key = "gpumem.job.allocated.bytes"
	AttrAllocatedBlocks   attribute.Key = "gpumem.job.allocated.blocks"
	AttrReserved          attribute.Key = "gpumem.job.reserved"
	AttrPredicted         attribute.Key = "gpumem.job.predicted"
	AttrUnusedByteSeconds attribute.Key = "gpumem.job.unused_byte_seconds"
	// AttrWaitMemory, AttrWaitStream and AttrWaitDevice are how long the job waited for room in the memory, for its
	// stream, and on the device behind others' work; the last is of AttrTimedLaunches of AttrLaunches.
	AttrWaitMemory    attribute.Key = "gpumem.job.wait.memory"
	AttrWaitStream    attribute.Key = "gpumem.job.wait.stream"
	AttrWaitDevice    attribute.Key = "gpumem.job.wait.device"
	AttrLaunches      attribute.Key = "gpumem.job.launches"
	AttrTimedLaunches attribute.Key = "gpumem.job.timed_launches"
	// AttrTrace is how much of the span's trace was exported: "full", or
	// "event" where the request is not sampled.
	AttrTrace attribute.Key = "gpumem.trace"
	// AttrLimit is the budget, AttrRemaining what a request could have had of it,
	// AttrHolders who holds the most, each as in the error's text.
	AttrLimit     attribute.Key = "gpumem.budget.limit"
	AttrRemaining attribute.Key = "gpumem.budget.remaining"
	AttrHolders   attribute.Key = "gpumem.budget.holders"
	// AttrWaited is how long a refused request had waited, AttrAhead how many stood before it in
	// line, AttrAheadBytes what they asked for together, AttrAheadTag the tag of the first of them.
	// AttrLearning is that the request was a guess.
	AttrWaited     attribute.Key = "gpumem.budget.waited"
	AttrAhead      attribute.Key = "gpumem.budget.ahead"
	AttrAheadBytes attribute.Key = "gpumem.budget.ahead_bytes"
	AttrAheadTag   attribute.Key = "gpumem.budget.ahead_tag"
	AttrLearning   attribute.Key = "gpumem.budget.learning"
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

// WaitForMemory is the value of [AttrWaitFor] while a request that would be refused waits
// for the device to come to memory that is freed.
const WaitForMemory = "memory"

// The values of [AttrLayer], from the outermost to the device.
const (
	LayerGuard  = "guard"
	LayerBudget = "budget"
	LayerLog    = "log"
	// LayerDriver is the backend, which calls the driver.
	LayerDriver = "driver"
)
