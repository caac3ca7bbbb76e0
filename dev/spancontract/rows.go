package spancontract

import (
	"fmt"
	"slices"

	t "github.com/fencepost-gpu/fencepost/telemetry"
)

const (
	named    = "named"
	returned = "the call returns the error of a finding"
	compared = "bytes were compared"
	known    = "the victim is known"
	waited   = "for each wait across streams whose cause was sampled"
	typed    = "typed"
	lonely   = "has no span of its own"
)

var (
	block  = always(t.AttrDevice, t.AttrStream, t.AttrGeneration, t.AttrTag, t.AttrRequested, t.AttrBytes, t.AttrState)
	step   = slices.Concat(always(t.AttrDevice, t.AttrStream), sometimes(named, t.AttrLaunchName))
	launch = slices.Concat(step, always(t.AttrLaunchID, t.AttrLaunchUses, t.AttrCrossStream, t.AttrWaitsQueued, t.AttrWaitsElided), []Attribute{onFailure()})
	use    = slices.Concat(step, always(t.AttrGeneration, t.AttrTag, t.AttrRequested, t.AttrBytes, t.AttrAccess, t.AttrState))
	batch  = slices.Concat(step, always(t.AttrGenerations, t.AttrLaunchUses, t.AttrRequested, t.AttrBytes, t.AttrAccess))
	waits  = always(t.AttrWaitsQueued, t.AttrWaitsElided)

	finding = slices.Concat(always(t.AttrFindingKind, t.AttrFindingSource, t.AttrFindingSuspects),
		sometimes(known, t.AttrDevice, t.AttrGeneration, t.AttrTag, t.AttrRequested),
		sometimes(compared, t.AttrFindingOffset, t.AttrFindingBytes, t.AttrFindingExpected, t.AttrFindingSeen),
		sometimes(typed, t.AttrErrorType))

	caller      = []t.SpanName{Caller}
	inLaunch    = []t.SpanName{t.SpanLaunch}
	failed      = always(t.AttrErrorType)
	refusal     = []Event{{Name: t.SpanFinding, When: returned, Attributes: append(slices.Clone(finding), always(t.AttrFindingText)...)}}
	waitLinks   = []Link{{To: []t.SpanName{t.SpanFinish, t.SpanAlloc}, When: waited, Attributes: always(t.AttrStream)}}
	levelLink   = []Link{{To: inLaunch, When: "at the level of launches " + waited, Attributes: always(t.AttrStream)}}
	deviceLinks = []Link{{To: []t.SpanName{t.SpanFinish, t.SpanAlloc, t.SpanLaunch}, When: waited,
		Attributes: slices.Concat(always(t.AttrStream, t.AttrGeneration, t.AttrTag, t.AttrAccess), sometimes("it was a launch's, and "+named, t.AttrLaunchName), sometimes("it is one of the first four", t.AttrHeld))}}
	reuseLinks = []Link{{To: []t.SpanName{t.SpanFinish}, When: "for each wait for a launch that was sampled",
		Attributes: slices.Concat(always(t.AttrStream, t.AttrTag), sometimes("that is "+named, t.AttrLaunchName), sometimes("it is one of the first four", t.AttrHeld))}}
	few  = fmt.Sprintf("each block of a launch of at most %d", t.MaxUseSpans)
	many = fmt.Sprintf("all blocks of a launch of more than %d", t.MaxUseSpans)
)

var rows = sayingTheirOperation([]Row{
	{Operation: t.SpanJob, Target: t.AttrTag, When: "each job (Runtime.Do), from its wait for a reservation and a stream until all is given back", Parents: caller, Status: ErrorOnFailure, Events: refusal,
		Attributes: slices.Concat(always(t.AttrDevice, t.AttrTag, t.AttrPeakRequested, t.AttrPeakBytes, t.AttrByteSeconds, t.AttrAllocatedBytes, t.AttrAllocatedBlocks,
			t.AttrWaitMemory, t.AttrWaitStream, t.AttrWaitDevice, t.AttrLaunches, t.AttrTimedLaunches),
			sometimes("it had a reservation", t.AttrReserved, t.AttrUnusedByteSeconds), sometimes("it was known what it would need", t.AttrPredicted), []Attribute{onFailure()})},

	{Operation: t.SpanAlloc, Target: t.AttrTag, Case: "granted", When: "each allocation", Parents: caller, Attributes: block},
	{Operation: t.SpanAlloc, Target: t.AttrTag, Case: "failed", When: "each allocation that failed", Parents: caller, Status: Error, Events: refusal,
		Attributes: slices.Concat(always(t.AttrDevice, t.AttrStream, t.AttrTag, t.AttrRequested, t.AttrBytes), failed)},
	{Operation: t.SpanDealloc, Target: t.AttrTag, Case: "done", When: "each deallocation: queueing the free, not waiting for it", Parents: caller, Attributes: block},
	{Operation: t.SpanDealloc, Case: "failed", When: "each deallocation that failed", Parents: caller, Status: Error, Events: refusal,
		Attributes: slices.Concat(always(t.AttrDevice, t.AttrStream, t.AttrGeneration), failed)},

	{Operation: t.SpanLaunch, Target: t.AttrLaunchName, Case: "finished", When: "each launch, from prepare to finish", Parents: caller, Status: ErrorOnFailure, Links: levelLink, Events: refusal,
		Attributes: append(slices.Clone(launch), fixed(t.AttrOutcome, t.OutcomeFinished))},
	{Operation: t.SpanLaunch, Target: t.AttrLaunchName, Case: "aborted", When: "each launch that was never enqueued", Parents: caller, Status: ErrorOnFailure, Links: levelLink, Events: refusal,
		Attributes: append(slices.Clone(launch), fixed(t.AttrOutcome, t.OutcomeAborted))},
	{Operation: t.SpanLaunch, Target: t.AttrLaunchName, Case: "refused", When: "each launch whose prepare failed", Parents: caller, Status: Error, Events: refusal,
		Attributes: slices.Concat(step, always(t.AttrLaunchUses), failed, []Attribute{fixed(t.AttrOutcome, t.OutcomeRefused)})},

	{Operation: t.SpanPrepare, Target: t.AttrLaunchName, Case: "one block", When: few, Parents: inLaunch, Links: waitLinks, Attributes: append(slices.Clone(use), waits...)},
	{Operation: t.SpanPrepare, Target: t.AttrLaunchName, Case: "all blocks", When: many, Parents: inLaunch, Links: waitLinks, Attributes: append(slices.Clone(batch), waits...)},
	{Operation: t.SpanPrepare, Target: t.AttrLaunchName, Case: "refused", When: "all blocks of a prepare that failed", Parents: inLaunch, Status: Error, Events: refusal,
		Attributes: slices.Concat(step, always(t.AttrGenerations), sometimes("the error names a block", t.AttrGeneration), failed)},

	{Operation: t.SpanFinish, Target: t.AttrLaunchName, Case: "one block", When: few, Parents: inLaunch, Status: ErrorOnFailure, Events: refusal, Attributes: append(slices.Clone(use), onFailure())},
	{Operation: t.SpanFinish, Target: t.AttrLaunchName, Case: "all blocks", When: many, Parents: inLaunch, Status: ErrorOnFailure, Events: refusal, Attributes: append(slices.Clone(batch), onFailure())},

	{Operation: t.SpanDevice, Target: t.AttrLaunchName, Case: "a launch", When: "each finished launch, on the device: from when its last wait was over until its work was done; the span comes when the runtime has seen that", Parents: inLaunch, Links: deviceLinks,
		Attributes: slices.Concat(step, always(t.AttrLaunchID, t.AttrQueued, t.AttrHeld, t.AttrClockError), sometimes("it had to wait for other streams", t.AttrHeldBy))},
	{Operation: t.SpanDevice, Target: t.AttrTag, Case: "memory used again", When: "each allocation that made its stream wait, because others used the memory before: from when the device came to the waits until they were over", Parents: []t.SpanName{t.SpanAlloc}, Links: reuseLinks,
		Attributes: always(t.AttrDevice, t.AttrStream, t.AttrTag, t.AttrQueued, t.AttrHeld, t.AttrClockError, t.AttrHeldBy)},

	{Operation: t.SpanFinding, Target: t.AttrFindingKind, Case: "of a launch", When: fmt.Sprintf("each finding, under those of its first %d suspects that were traced; without a suspect under the victim's newest traced use", t.MaxFindingSpans),
		Parents: []t.SpanName{t.SpanFinish, t.SpanLaunch}, Status: Error,
		Attributes: slices.Concat(finding, always(t.AttrLaunchID, t.AttrStream), sometimes(named, t.AttrLaunchName))},
	{Operation: t.SpanFinding, Target: t.AttrFindingKind, Case: "of a request", When: fmt.Sprintf("each finding, in the request, sampled or not, of the likeliest of its first %d suspects that were not traced; if no launch is known, or more than three of which none declared the victim, in the request that freed the victim, or else in the one that allocated it", t.MaxFindingSpans),
		Parents: []t.SpanName{Caller, t.SpanLaunch, t.SpanDealloc, t.SpanAlloc}, Status: Error,
		Attributes: slices.Concat(finding, always(t.AttrTrace), sometimes("a launch is suspected", t.AttrLaunchID, t.AttrStream), sometimes(named, t.AttrLaunchName))},
	{Operation: t.SpanCopy, Target: t.AttrCopyDirection, When: "each copy, while the driver is given it; when it is done shows the wait for its stream", Parents: []t.SpanName{t.SpanLaunch, Caller}, Status: ErrorOnFailure,
		Attributes: append(always(t.AttrDevice, t.AttrStream, t.AttrCopyDirection, t.AttrCopyBytes), onFailure())},
	{Operation: t.SpanWait, Target: t.AttrWaitFor, Case: "for a stream", When: "each wait of the host until a stream is done", Parents: []t.SpanName{Caller, t.SpanLaunch}, Status: ErrorOnFailure,
		Attributes: append(always(t.AttrDevice, t.AttrStream), fixed(t.AttrWaitFor, t.WaitForStream), onFailure())},
	{Operation: t.SpanWait, Target: t.AttrWaitFor, Case: "for memory", When: "each request for memory that would be refused, while the device comes to memory that is freed", Parents: []t.SpanName{Caller, t.SpanAlloc, t.SpanLayer}, Status: ErrorOnFailure,
		Attributes: append(always(t.AttrDevice, t.AttrStream, t.AttrBytes), fixed(t.AttrWaitFor, t.WaitForMemory), onFailure())},

	{Operation: t.SpanRefusal, Target: t.AttrTag, When: "each request for memory that a budget refused and that " + lonely, Parents: caller, Status: Error,
		Attributes: slices.Concat(always(t.AttrDevice, t.AttrTag, t.AttrRequested, t.AttrLimit, t.AttrRemaining,
			t.AttrTrace), failed, sometimes("anybody holds memory", t.AttrHolders),
			sometimes("the request waited", t.AttrWaited), sometimes("others stood before it in line", t.AttrAhead,
				t.AttrAheadBytes, t.AttrAheadTag), sometimes("it was a guess", t.AttrLearning))},
	{Operation: t.SpanFailure, Target: t.AttrOperation, When: "each other call that failed and " + lonely, Parents: caller, Status: Error, Events: refusal,
		Attributes: slices.Concat(always(t.AttrDevice, t.AttrOperation, t.AttrTrace), failed,
			sometimes("the call names a stream", t.AttrStream), sometimes("the call is for memory", t.AttrTag, t.AttrRequested),
			sometimes("the call or the error names a block", t.AttrGeneration), sometimes(named, t.AttrLaunchName))},
	{Operation: t.SpanLayer, Target: t.AttrLayer, When: "each call of a traced operation into a layer, with TraceLayers", Status: ErrorOnFailure,
		Parents:    []t.SpanName{t.SpanAlloc, t.SpanDealloc, t.SpanLaunch, t.SpanLayer},
		Attributes: append(always(t.AttrDevice, t.AttrLayer, t.AttrOperation), onFailure())},
})

func sayingTheirOperation(rows []Row) []Row {
	for i := range rows {
		r := &rows[i]
		r.Attributes = append(slices.Clone(r.Attributes), fixed(t.AttrSpanOperation, string(r.Operation)))
	}
	return rows
}

// Rows lists the contract. The slice is the caller's, what it holds is not.
func Rows() []Row { return slices.Clone(rows) }
