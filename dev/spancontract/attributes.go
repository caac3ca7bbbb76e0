package spancontract

import (
	"go.opentelemetry.io/otel/attribute"

	t "github.com/fencepost-gpu/fencepost/telemetry"
)

// bytes is the unit of sizes, as UCUM writes it.
const bytes = "By"

var definitions = []Definition{
	{t.AttrSpanOperation, attribute.STRING, "", "the operation, with which the span's name begins, without its target"},
	{t.AttrDevice, attribute.INT64, "", "the device's ordinal"},
	{t.AttrStream, attribute.INT64, "", "the allocation stream of an alloc and a dealloc, the launch's stream otherwise; on a link the stream of the work waited for"},
	{t.AttrGeneration, attribute.INT64, "", "the block, by the number that logs and findings have too; on a refused prepare the block that the error names"},
	{t.AttrGenerations, attribute.INT64SLICE, "", "the blocks of a span that stands for several"},
	{t.AttrTag, attribute.STRING, "", "the tag that the block is accounted under; a job's name"},
	{t.AttrRequested, attribute.INT64, bytes, "what the caller asked for; the sum where the span stands for several blocks"},
	{t.AttrBytes, attribute.INT64, bytes, "the size as the layer below says: without a guard's red zones on an alloc and a dealloc, with them on a prepare and a finish; a sum likewise"},
	{t.AttrState, attribute.STRING, "", "the block's state: live, retired, quarantined or freed"},
	{t.AttrAccess, attribute.STRING, "", "read, write or read_write; combined where the span stands for several blocks"},
	{t.AttrWaitsQueued, attribute.INT64, "", "waits queued for the block, or for the launch"},
	{t.AttrWaitsElided, attribute.INT64, "", "dependencies on other streams that needed no wait"},
	{t.AttrLaunchName, attribute.STRING, "", "the launch's name"},
	{t.AttrLaunchID, attribute.INT64, "", "the launch's number in the process, as in logs and findings"},
	{t.AttrLaunchUses, attribute.INT64, "", "how many blocks the launch uses"},
	{t.AttrCrossStream, attribute.BOOL, "", "whether a block was last written on another stream"},
	{t.AttrOutcome, attribute.STRING, "", "how the launch ended: finished, aborted or refused"},
	{t.AttrLayer, attribute.STRING, "", "the layer that the call passed into: guard, budget, log or driver"},
	{t.AttrOperation, attribute.STRING, "", "what it was asked, or the call that failed: allocate, deallocate, prepare, finish, abort, record, reserve, release_claim, reap or drain"},
	{t.AttrFindingKind, attribute.STRING, "", "the kind of the memory bug"},
	{t.AttrFindingSource, attribute.STRING, "", "the layer that saw it"},
	{t.AttrFindingText, attribute.STRING, "", "what happened"},
	{t.AttrFindingSuspects, attribute.INT64, "", "how many launches may have done it"},
	{t.AttrFindingOffset, attribute.INT64, bytes, "where the first bad byte is, from the victim's address"},
	{t.AttrFindingBytes, attribute.INT64, bytes, "how many bytes are bad"},
	{t.AttrFindingExpected, attribute.STRING, "", `what the first bad byte should have been, such as "0x5f"`},
	{t.AttrFindingSeen, attribute.STRING, "", "what it was"},
	{t.AttrCopyDirection, attribute.STRING, "", "where a copy goes: to_device, to_host, on_device or from_peer"},
	{t.AttrCopyBytes, attribute.INT64, bytes, "how much it copies"},
	{t.AttrWaitFor, attribute.STRING, "", "what was waited for: stream, all that was enqueued on it so far; memory, that is freed and that the device has not come to"},
	{t.AttrQueued, attribute.INT64, "ns", "how long a launch stood behind its own stream on the device, from when the host began to queue its waits"},
	{t.AttrHeld, attribute.INT64, "ns", "how long it was held up there by waits for other streams; on a link by that wait"},
	{t.AttrHeldBy, attribute.STRINGSLICE, "", "by which waits, in their order: how long, the launch waited for, its stream, and the access of a block that it was for; of more than four the others are unattributed"},
	{t.AttrClockError, attribute.INT64, "ns", "how far the span's times may be from the host's clock"},
	{t.AttrPeakRequested, attribute.INT64, bytes, "the most that was live at once of a job, as it asked for it"},
	{t.AttrPeakBytes, attribute.INT64, bytes, "the same with padding and red zones, as a budget charges it"},
	{t.AttrByteSeconds, attribute.FLOAT64, "By.s", "what the job took of the memory: bytes times seconds, padding included"},
	{t.AttrAllocatedBytes, attribute.INT64, bytes, "all that the job ever allocated, padding included"},
	{t.AttrAllocatedBlocks, attribute.INT64, "", "in how many blocks"},
	{t.AttrReserved, attribute.INT64, bytes, "the job's reservation"},
	{t.AttrPredicted, attribute.INT64, bytes, "what earlier jobs said that it would need, as it asks for it"},
	{t.AttrUnusedByteSeconds, attribute.FLOAT64, "By.s", "what was reserved and not live: bytes times seconds"},
	{t.AttrWaitMemory, attribute.INT64, "ns", "how long the job waited for room, for its reservation and its allocations"},
	{t.AttrWaitStream, attribute.INT64, "ns", "how long it waited for its stream"},
	{t.AttrWaitDevice, attribute.INT64, "ns", "how long its streams stood on the device behind others' work, in the launches and allocations that were timed"},
	{t.AttrLaunches, attribute.INT64, "", "how many launches the job made, copies among them"},
	{t.AttrTimedLaunches, attribute.INT64, "", "how many of them were timed on the device when the job ended"},
	{t.AttrTrace, attribute.STRING, "", "how much of the span's trace was exported: full, or event where the request is not sampled"},
	{t.AttrLimit, attribute.INT64, bytes, "the budget"},
	{t.AttrRemaining, attribute.INT64, bytes, "what a request could have had of it"},
	{t.AttrHolders, attribute.STRINGSLICE, "", "who holds the most, largest first: tag, state, bytes and blocks, or claimed, bytes and reservations"},
	{t.AttrWaited, attribute.INT64, "ns", "how long the request had waited when it was refused"},
	{t.AttrAhead, attribute.INT64, "", "how many requests stood before it in line"},
	{t.AttrAheadBytes, attribute.INT64, bytes, "what those asked for together"},
	{t.AttrAheadTag, attribute.STRING, "", "the tag of the first of them"},
	{t.AttrLearning, attribute.BOOL, "", "the request was a guess: nothing is known yet of what jobs of its tag need"},
	{t.AttrErrorType, attribute.STRING, "", "the class of the error, such as out_of_budget, or the driver's name of it"},
}

// Definitions lists every attribute. The slice is the caller's.
func Definitions() []Definition { return append([]Definition(nil), definitions...) }

// define finds the definition of a key, nil if the contract has no such key.
func define(key attribute.Key) *Definition {
	for i := range definitions {
		if definitions[i].Key == key {
			return &definitions[i]
		}
	}
	return nil
}
