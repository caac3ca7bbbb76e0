package core

import (
	"context"
	"fmt"
)

// Resource is device memory in stream order: a backend, or a decorator
// around one. It follows the DeviceMemoryResource of the original, the Rust crate that
// dev/seeds.md compares, and is total:
// each method means something on every backend, and what a backend cannot do
// it refuses with an error that matches errors.ErrUnsupported.
//
// All methods are safe for concurrent use. None blocks on the device unless
// its comment says so. ctx carries the caller's trace; only methods that may
// block heed its end. An error consumes nothing but a ticket that was to be
// spent: after a failed Deallocate the block is as live as before.
type Resource interface {
	// String names the stack from the outside in, such as
	// "debugguard(budget(logging(async(sim:0))))".
	fmt.Stringer

	// Ordinal is the device that the resource serves.
	Ordinal() int

	// Features says what the resource can do. A decorator may narrow what its
	// upstream says, and adds only what it implements itself.
	Features() Features

	// Allocate returns a live block, usable at once on r.Stream. Errors:
	// [InvalidRequestError], [OutOfBudgetError] (which matches [ErrClaimExceeded]
	// if r.Claim is short), [StreamMisuseError] for a stream that is not leased,
	// [DriverError].
	Allocate(ctx context.Context, r Request) (Block, error)

	// Deallocate gives a block back. The free comes after every outstanding use,
	// and what is enqueued on the block's allocation stream later waits for none; the
	// block returned is Retired, Quarantined or Freed. While an intent is open on the block
	// the free is queued when the last one closes. Errors:
	// [UseAfterFreeError] if the block is not live, [StreamMisuseError] for
	// another device's block, [DriverError].
	Deallocate(ctx context.Context, id BlockID) (Block, error)

	// PrepareUse opens an intent on all blocks of r, or on none, and queues
	// on r.Stream the waits that the launch needs. It must be called before
	// the work is enqueued. Errors: [UseAfterFreeError], [DriverError], and
	// [StreamMisuseError] for a stream that is not leased, a conflicting
	// open intent on another stream (unless r.Wait), or no tracking.
	PrepareUse(ctx context.Context, r UseRequest) (Ticket, error)

	// FinishUse closes the intent after the work was enqueued: it records the end
	// of the launch, for which later uses of its blocks and their frees wait. The ticket is spent even
	// if an error is returned; the blocks are fenced all the same, or
	// poisoned if the driver lets nothing be fenced.
	FinishUse(ctx context.Context, t Ticket) error

	// AbortUse closes the intent of a launch that was never enqueued.
	AbortUse(ctx context.Context, t Ticket) error

	// RecordUse is the original's single-step form: work that reads and
	// writes the block was enqueued on stream without prepared waits. It
	// adds to what a free or a later use waits for and removes nothing.
	RecordUse(ctx context.Context, id BlockID, stream StreamID) error

	// Reserve sets bytes aside for requests that name the claim, before
	// work starts. It is granted whole or refused with [OutOfBudgetError].
	Reserve(ctx context.Context, bytes uint64, tag Tag) (Claim, error)

	// ReleaseClaim gives back what is left of a claim. Blocks drawn from it
	// stay charged until they are released.
	ReleaseClaim(ctx context.Context, id ClaimID) error

	// ReapPending asks the device which queued frees it has passed and
	// releases those. It never blocks on the device.
	ReapPending(ctx context.Context) error

	// Drain blocks until the device has passed every queued free and every
	// quarantined block is released, or ctx ends. Stats is accurate after it.
	Drain(ctx context.Context) error

	// State is the block's state; Freed if the resource does not know it.
	State(id BlockID) BlockState

	// Stats is a consistent-enough snapshot: each counter is exact, their
	// combination is exact when the resource is quiet. It makes no device
	// call.
	Stats() Stats

	// FreedOn is the free counters of the physical stream of id; zero for a
	// stream that is not leased. It makes no device call and calls no
	// listener.
	FreedOn(id StreamID) FreeCounters

	// Subscribe adds a listener for released blocks. It is meant for
	// construction; there is no way to unsubscribe.
	Subscribe(l Listener)

	// Withhold says that the owner of a block that is live here has given it back
	// to a guard above, and what it is to callers now: Retired while a launch keeps
	// it, Quarantined from then on; calls may overtake each other, and the later
	// state holds. It counts no more in Stats.PeakRequested and Stats.PeakBytes, and
	// is among a budget's holders as what it is. It stays live to all calls until it
	// is deallocated. A block that is not live changes nothing. It may be called more
	// than once, makes no device call and does not block. [Request.Withheld] says
	// the same of a block from the start.
	Withhold(id BlockID, as BlockState)

	// CheckLive has each layer that watches the bytes of blocks compare those of
	// every block that is live, because it will not be freed any more: it queues the
	// comparisons behind the blocks' declared uses, the next Drain waits for the
	// verdicts, and what they say is reported. What cannot be compared, as that of a
	// block with an open intent that conflicts, is left out. It ends early with ctx,
	// whose error it returns, and with an error that matches [ErrSticky]. It does not
	// wait for the device unless that is far behind, or nothing below tracks uses.
	CheckLive(ctx context.Context) error

	// Inspect tells what the stack knows of its blocks and streams. It is never
	// nil, and the same at each call.
	Inspect() Inspector

	// Unwrap is the upstream of a decorator and nil for a backend. No call that
	// changes anything is made through it.
	Unwrap() Resource
}

// Listener hears of blocks leaving a resource's books.
type Listener interface {
	// Released is called exactly once for each block, when its memory can be
	// allocated again: by Deallocate itself on a synchronous backend and, unless a launch or
	// a use on another stream keeps the free back, on one with [OrderedRelease], by
	// the goroutine that reaps on any other. b.Bytes is what was asked of
	// the resource that calls, and b.ID is as Allocate returned it. The backend
	// holds no lock meanwhile; a layer above it may. So Released must not block
	// and must call no layer of the stack, and a lock that it takes must never be
	// held over a call of the stack that may release blocks.
	Released(b Block)
}

// FreeCounters counts the bytes of frees on one physical stream, since the
// stream was made. Queued-Completed bytes are pending there; a later allocation on
// the same stream may use them in stream order.
type FreeCounters struct {
	// Queued is the bytes of all frees queued, Completed of those that the device
	// is known to have completed.
	Queued, Completed uint64
}
