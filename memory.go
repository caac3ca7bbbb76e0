package fencepost

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
)

// Allocate returns a block of device memory, for code that keeps addresses itself;
// [Alloc] and [cuda.Alloc] return typed memory. The block is ready in the order of the
// request's stream, and must be given back with [Runtime.Deallocate]. It does not wait for
// the device, unless the pool must grow or the guard makes room.
//
// Errors are [core.OutOfBudgetError], or one that matches [core.ErrClaimExceeded], for a
// refusal, [core.OutOfMemoryError] where the budget has room and the pool has none,
// [core.InvalidRequestError], those of the driver, and [core.ErrClosed].
func (r *Runtime) Allocate(ctx context.Context, req core.Request) (core.Block, error) {
	return r.Core().Allocate(ctx, req)
}

// Deallocate frees a block, in the order of the stream that it was allocated on and behind
// every use that a launch declared, on whatever stream. It does not wait for the device. It
// returns the block as it was, with its state after the free. A block that was freed before
// is a [core.UseAfterFreeError]; after any error the block is as live as before.
func (r *Runtime) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	return r.Core().Deallocate(ctx, id)
}

// Reserve sets bytes of the budget aside, which only requests with the claim's ID draw
// from. It does not wait: a claim for which there is no room is a [core.OutOfBudgetError].
// It must be given back with [Runtime.ReleaseClaim]. A job reserves with the option
// [Reserve], which can wait.
func (r *Runtime) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	return r.Core().Reserve(ctx, bytes, tag)
}

// ReleaseClaim gives back what is left of a claim. What was allocated from it stays
// charged until it is freed. A claim that is not known is a [core.InvalidRequestError].
func (r *Runtime) ReleaseClaim(ctx context.Context, id core.ClaimID) error {
	return r.Core().ReleaseClaim(ctx, id)
}

// Launch fences work that the driver or a library enqueues: it makes the stream wait for
// the conflicting uses of other streams, calls launch, which must enqueue on that stream
// and nowhere else, and records the uses, so that later ones and the frees wait for them.
// It waits on the host only while another launch of the same blocks is between the two;
// ctx bounds that. Kernels that [Runtime.Load] loaded are launched with [Job.Launch] or
// [cuda.Kernel.Launch] instead.
//
// An error or panic of launch counts as if the work had been enqueued, because some of it
// may have been; wrap it with [core.NotEnqueued] if none was. The other errors are
// [core.UseAfterFreeError], [core.StreamMisuseError], those of the driver, ctx's, and
// [core.ErrClosed].
func (r *Runtime) Launch(ctx context.Context, stream core.StreamID, uses []core.Use, launch func(context.Context) error) error {
	return r.Core().Launch(ctx, stream, uses, launch)
}

// LaunchNamed is [Runtime.Launch] with a name for traces, logs and findings. It comes from
// a small fixed set, such as the kernel's name.
func (r *Runtime) LaunchNamed(ctx context.Context, name string, stream core.StreamID, uses []core.Use, launch func(context.Context) error) error {
	return r.Core().LaunchNamed(ctx, name, stream, uses, launch)
}

// Drain blocks until the device has passed every queued free, or ctx ends. It is refused
// with [core.ErrClosed] once Close has begun, which drains by itself.
func (r *Runtime) Drain(ctx context.Context) error {
	if err := r.refuseClosed("Drain"); err != nil {
		return err
	}
	return r.core.Drain(ctx)
}

// ReapPending releases the frees that the device has passed; it never blocks. The runtime
// does so in the background, unless that is off. It is refused with [core.ErrClosed] once
// Close has begun.
func (r *Runtime) ReapPending(ctx context.Context) error {
	if err := r.refuseClosed("ReapPending"); err != nil {
		return err
	}
	return r.core.ReapPending(ctx)
}

// Stats counts bytes and blocks by state, the budget, launches, waits and refusals. It
// makes no device call. A nil Runtime has none.
func (r *Runtime) Stats() core.Stats {
	if r == nil {
		return core.Stats{}
	}
	return r.core.Stats()
}

// Ordinal is the device's number.
func (r *Runtime) Ordinal() int {
	if r == nil {
		return 0
	}
	return r.core.Ordinal()
}

// String names the layers of the stack, outermost first, and the device.
func (r *Runtime) String() string {
	if r == nil {
		return "no runtime"
	}
	return r.core.String()
}
