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

	caller    = []t.SpanName{Caller}
	inLaunch  = []t.SpanName{t.SpanLaunch}
	failed    = always(t.AttrErrorType)
	refusal   = []Event{{Name: t.SpanFinding, When: returned, Attributes: append(slices.Clone(finding), always(t.AttrFindingText)...)}}
	waitLinks = []Link{{To: []t.SpanName{t.SpanFinish, t.SpanAlloc}, When: waited, Attributes: always(t.AttrStream)}}
	levelLink = []Link{{To: inLaunch, When: "at the level of launches " + waited, Attributes: always(t.AttrStream)}}
	few       = fmt.Sprintf("each block of a launch of at most %d", t.MaxUseSpans)
	many      = fmt.Sprintf("all blocks of a launch of more than %d", t.MaxUseSpans)
)

var rows = []Row{
	{Name: t.SpanAlloc, Case: "granted", When: "each allocation", Parents: caller, Attributes: block},
	{Name: t.SpanAlloc, Case: "failed", When: "each allocation that failed", Parents: caller, Status: Error, Events: refusal,
		Attributes: slices.Concat(always(t.AttrDevice, t.AttrStream, t.AttrTag, t.AttrRequested, t.AttrBytes), failed)},
	{Name: t.SpanDealloc, Case: "done", When: "each deallocation: queueing the free, not waiting for it", Parents: caller, Attributes: block},
	{Name: t.SpanDealloc, Case: "failed", When: "each deallocation that failed", Parents: caller, Status: Error, Events: refusal,
		Attributes: slices.Concat(always(t.AttrDevice, t.AttrStream, t.AttrGeneration), failed)},

	{Name: t.SpanLaunch, Case: "finished", When: "each launch, from prepare to finish", Parents: caller, Status: ErrorOnFailure, Links: levelLink, Events: refusal,
		Attributes: append(slices.Clone(launch), fixed(t.AttrOutcome, t.OutcomeFinished))},
	{Name: t.SpanLaunch, Case: "aborted", When: "each launch that was never enqueued", Parents: caller, Status: ErrorOnFailure, Links: levelLink, Events: refusal,
		Attributes: append(slices.Clone(launch), fixed(t.AttrOutcome, t.OutcomeAborted))},
	{Name: t.SpanLaunch, Case: "refused", When: "each launch whose prepare failed", Parents: caller, Status: Error, Events: refusal,
		Attributes: slices.Concat(step, always(t.AttrLaunchUses), failed, []Attribute{fixed(t.AttrOutcome, t.OutcomeRefused)})},

	{Name: t.SpanPrepare, Case: "one block", When: few, Parents: inLaunch, Links: waitLinks, Attributes: append(slices.Clone(use), waits...)},
	{Name: t.SpanPrepare, Case: "all blocks", When: many, Parents: inLaunch, Links: waitLinks, Attributes: append(slices.Clone(batch), waits...)},
	{Name: t.SpanPrepare, Case: "refused", When: "all blocks of a prepare that failed", Parents: inLaunch, Status: Error, Events: refusal,
		Attributes: slices.Concat(step, always(t.AttrGenerations), sometimes("the error names a block", t.AttrGeneration), failed)},

	{Name: t.SpanFinish, Case: "one block", When: few, Parents: inLaunch, Status: ErrorOnFailure, Events: refusal, Attributes: append(slices.Clone(use), onFailure())},
	{Name: t.SpanFinish, Case: "all blocks", When: many, Parents: inLaunch, Status: ErrorOnFailure, Events: refusal, Attributes: append(slices.Clone(batch), onFailure())},

	{Name: t.SpanFinding, Case: "of a launch", When: fmt.Sprintf("each finding, under those of its first %d suspects that were traced; without a suspect under the victim's newest traced use", t.MaxFindingSpans),
		Parents: []t.SpanName{t.SpanFinish, t.SpanLaunch}, Status: Error,
		Attributes: slices.Concat(finding, always(t.AttrLaunchID, t.AttrStream), sometimes(named, t.AttrLaunchName))},
	{Name: t.SpanFinding, Case: "of a request", When: fmt.Sprintf("each finding, in the request, sampled or not, of the likeliest of its first %d suspects that were not traced; if no launch is known, or more than three of which none declared the victim, in the request that freed the victim, or else in the one that allocated it", t.MaxFindingSpans),
		Parents: []t.SpanName{Caller, t.SpanLaunch, t.SpanDealloc, t.SpanAlloc}, Status: Error,
		Attributes: slices.Concat(finding, always(t.AttrTrace), sometimes("a launch is suspected", t.AttrLaunchID, t.AttrStream), sometimes(named, t.AttrLaunchName))},
	{Name: t.SpanCopy, When: "each copy, while the driver is given it; when it is done shows the wait for its stream", Parents: []t.SpanName{t.SpanLaunch, Caller}, Status: ErrorOnFailure,
		Attributes: append(always(t.AttrDevice, t.AttrStream, t.AttrCopyDirection, t.AttrCopyBytes), onFailure())},
	{Name: t.SpanWait, Case: "for a stream", When: "each wait of the host until a stream is done", Parents: []t.SpanName{Caller, t.SpanLaunch}, Status: ErrorOnFailure,
		Attributes: append(always(t.AttrDevice, t.AttrStream), fixed(t.AttrWaitFor, t.WaitForStream), onFailure())},
	{Name: t.SpanWait, Case: "for memory", When: "each request for memory that would be refused, while the device comes to memory that is freed", Parents: []t.SpanName{Caller, t.SpanAlloc, t.SpanLayer}, Status: ErrorOnFailure,
		Attributes: append(always(t.AttrDevice, t.AttrStream, t.AttrBytes), fixed(t.AttrWaitFor, t.WaitForMemory), onFailure())},

	{Name: t.SpanRefusal, When: "each request for memory that a budget refused and that " + lonely, Parents: caller, Status: Error,
		Attributes: slices.Concat(always(t.AttrDevice, t.AttrTag, t.AttrRequested, t.AttrLimit, t.AttrRemaining, t.AttrTrace), failed, sometimes("anybody holds memory", t.AttrHolders))},
	{Name: t.SpanFailure, When: "each other call that failed and " + lonely, Parents: caller, Status: Error, Events: refusal,
		Attributes: slices.Concat(always(t.AttrDevice, t.AttrOperation, t.AttrTrace), failed,
			sometimes("the call names a stream", t.AttrStream), sometimes("the call is for memory", t.AttrTag, t.AttrRequested),
			sometimes("the call or the error names a block", t.AttrGeneration), sometimes(named, t.AttrLaunchName))},
	{Name: t.SpanLayer, When: "each call of a traced operation into a layer, with TraceLayers", Status: ErrorOnFailure,
		Parents:    []t.SpanName{t.SpanAlloc, t.SpanDealloc, t.SpanLaunch, t.SpanLayer},
		Attributes: append(always(t.AttrDevice, t.AttrLayer, t.AttrOperation), onFailure())},
}

// Rows lists the contract. The slice is the caller's, what it holds is not.
func Rows() []Row { return slices.Clone(rows) }
