// Package oplog has the records of operations, by which layers tell logs and traces what
// was asked of a device: for those who write a sink, or a layer that reports.
package oplog

import (
	"context"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// Op is an operation that is reported as an [Event].
type Op uint8

// The operations.
const (
	OpAllocate Op = iota + 1
	OpDeallocate
	OpPrepare
	OpFinish
	OpAbort
	OpRecord
	OpReserve
	OpReleaseClaim
	OpReap
	OpDrain
	// OpRefusal is a request that a budget refused.
	OpRefusal
	// OpRelease is a block leaving the books.
	OpRelease
	// OpDevice is the device's part of a launch, which has ended: see [Event.Device].
	OpDevice
	// OpJob is a job that has ended: see [Event.Job].
	OpJob
)

var opNames = [...]string{"unknown", "allocate", "deallocate", "prepare", "finish", "abort", "record",
	"reserve", "release_claim", "reap", "drain", "refusal", "release", "device", "job"}

// String is the operation's name in logs, such as "allocate".
func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return "unknown"
}

// Event is the record of one operation. It is a value, and what it points to is never changed.
type Event struct {
	Op Op
	// Relieved marks a refusal that a layer above cured by giving memory
	// back and asking again.
	Relieved bool
	// Alone: Span is of a trace that is not sampled; see [core.SpanRef.Extent].
	Alone bool
	// Access is the combined access of a launch; see Launch.
	Access core.Access
	// Layer is the layer that reports, such as "logging" or "budget".
	Layer string
	// Time is when the operation began, wall clock and monotonic.
	Time time.Time
	// Duration is how long it took, 0 if that was not taken: of the allocations and frees that a stream serves at
	// once one in 16 is timed.
	Duration time.Duration
	Ordinal  int
	// Stream is the stream that the operation named.
	Stream core.StreamID
	// Block is the block concerned; in a failed allocation its Ptr and
	// Generation are zero, and in a launch it is the first block.
	Block core.BlockID
	Tag   core.Tag
	// Requested and Bytes are sizes in bytes; see [core.Block].
	Requested, Bytes uint64
	// Launch, Access, Uses, Waits and Elided describe a prepare, finish or
	// abort: its name, the combined access, the number of blocks, of waits
	// queued and of waits not needed.
	Launch              string
	Uses, Waits, Elided int
	// LaunchID is the number of that launch, the same in its prepare and its
	// end; zero in a prepare that failed. WaitedFor is what its first waits
	// were for, as far as the resource says.
	LaunchID  uint64
	WaitedFor [4]core.WaitRef
	// Span is the sampled span under which the operation ran, see [core.SpanOf], or
	// the one that a [Sink] made of a refusal. Zero if there is none or
	// no trace has.
	Span core.SpanRef
	// Device is what the device did, of an OpDevice and of nothing else; see [DeviceWork.Event].
	Device *DeviceWork
	// Job is what a job has needed, of an OpJob and of nothing else; Requested and Bytes are its peak, Tag is its name, and
	// Stream its first.
	Job *core.JobAccount
	// Err is the error returned, nil for a success.
	Err error
}

// Sink takes events.
type Sink interface {
	// Emit takes one event of an operation that ran under ctx, in which the
	// request's trace can be found even where that is not sampled. It must be safe
	// for concurrent use, must not block and keeps nothing of ctx.
	Emit(ctx context.Context, e Event)
}
