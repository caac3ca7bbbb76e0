package core

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core/names"
)

// Runtime is what a service holds: one device's resource stack behind a
// facade that adds the launch protocol, health and an orderly end. It follows
// the original's XlogDeviceRuntime. All methods are safe for concurrent use.
type Runtime struct {
	_        [64]byte // what every operation reads shares no cache line with what others write
	resource Resource
	findings func(Finding)

	refuses atomic.Bool // is set before each of closing, closed and lost: an operation reads this one alone
	closing atomic.Bool // new work is refused
	ending  atomic.Bool // Close has begun
	closed  atomic.Bool // and what gives back is too
	lost    atomic.Pointer[stickyFault]
	_       [64]byte
	sticky  atomic.Uint64
	dropped atomic.Uint64
}

type stickyFault struct {
	err error
	op  string
	at  time.Time
}

// NewRuntime composes a runtime around the caller's stack, whose outermost layer is
// resource. findings gets what the runtime itself finds, such as dropped recorders and a
// lost device; nil discards it. It must be safe for concurrent use and must not call the
// stack. The runtime is no process singleton; the root package's Device is.
func NewRuntime(resource Resource, findings func(Finding)) (*Runtime, error) {
	if resource == nil {
		return nil, missing("NewRuntime", "resource", "pass the outermost layer of a resource stack")
	}
	return &Runtime{resource: resource, findings: findings}, nil
}

// Ordinal is the device that the runtime serves.
func (r *Runtime) Ordinal() int { return r.resource.Ordinal() }

// Resource is the outermost layer of the stack.
func (r *Runtime) Resource() Resource { return r.resource }

// String names the stack.
func (r *Runtime) String() string { return r.resource.String() }

// Allocate returns a live block; see [Resource.Allocate].
func (r *Runtime) Allocate(ctx context.Context, req Request) (b Block, err error) {
	if err := r.admit("Allocate"); err != nil {
		return b, err
	}
	b, err = r.resource.Allocate(ctx, req)
	if err == nil && !r.refuses.Load() {
		return b, nil
	}
	if err != nil {
		r.reportOutOfMemory(req, err)
	} else if r.closed.Load() { // while it was under way: Close has not seen the block, and nothing is taken back
		_, err = r.resource.Deallocate(context.WithoutCancel(ctx), b.ID)
		return Block{}, errors.Join(r.admitReturn("Allocate"), err)
	}
	return b, r.observe("Allocate", err)
}

// Deallocate gives a block back; see [Resource.Deallocate].
func (r *Runtime) Deallocate(ctx context.Context, id BlockID) (b Block, err error) {
	if err := r.admitReturn("Deallocate"); err != nil {
		return b, err
	}
	if b, err = r.resource.Deallocate(ctx, id); err != nil {
		err = r.observe("Deallocate", err)
	}
	return b, err
}

// PrepareUse opens the intent of one launch; see [Resource.PrepareUse]. Most
// callers want [Runtime.Launch].
func (r *Runtime) PrepareUse(ctx context.Context, req UseRequest) (Ticket, error) {
	return r.prepareUse(ctx, &req)
}

func (r *Runtime) prepareUse(ctx context.Context, req *UseRequest) (Ticket, error) {
	if err := r.admit("PrepareUse"); err != nil {
		return Ticket{}, err
	}
	t, err := r.resource.PrepareUse(ctx, *req)
	switch {
	case err != nil:
		return t, r.observe("PrepareUse", err)
	case r.closed.Load(): // while it waited
		return Ticket{}, errors.Join(r.admitReturn("PrepareUse"), r.resource.AbortUse(context.WithoutCancel(ctx), t))
	}
	return t, nil
}

// FinishUse closes the intent of a launch that was enqueued; see
// [Resource.FinishUse].
func (r *Runtime) FinishUse(ctx context.Context, t Ticket) error {
	if r == nil {
		return missingRuntime("FinishUse")
	}
	if err := r.resource.FinishUse(ctx, t); err != nil {
		return r.observe("FinishUse", err)
	}
	return nil
}

// AbortUse closes the intent of a launch that was not enqueued.
func (r *Runtime) AbortUse(ctx context.Context, t Ticket) error {
	if r == nil {
		return missingRuntime("AbortUse")
	}
	return r.observe("AbortUse", r.resource.AbortUse(ctx, t))
}

// Reserve sets bytes aside; see [Resource.Reserve].
func (r *Runtime) Reserve(ctx context.Context, bytes uint64, tag Tag) (Claim, error) {
	if err := r.admit("Reserve"); err != nil {
		return Claim{}, err
	}
	c, err := r.resource.Reserve(ctx, bytes, Tag(names.Bound(string(tag))))
	if err == nil && r.closed.Load() { // while it waited
		return Claim{}, errors.Join(r.admitReturn("Reserve"), r.resource.ReleaseClaim(context.WithoutCancel(ctx), c.ID))
	}
	return c, err
}

// ReleaseClaim gives back what is left of a claim.
func (r *Runtime) ReleaseClaim(ctx context.Context, id ClaimID) error {
	if r == nil {
		return missingRuntime("ReleaseClaim")
	}
	return r.resource.ReleaseClaim(ctx, id)
}

// ReapPending releases the frees that the device has passed; it never blocks.
func (r *Runtime) ReapPending(ctx context.Context) error {
	if r == nil {
		return missingRuntime("ReapPending")
	}
	return r.observe("ReapPending", r.resource.ReapPending(ctx))
}

// Drain blocks until every queued free is passed, or ctx ends.
func (r *Runtime) Drain(ctx context.Context) error {
	if r == nil {
		return missingRuntime("Drain")
	}
	return r.observe("Drain", r.resource.Drain(ctx))
}

// Stats is a snapshot of the whole stack.
func (r *Runtime) Stats() Stats { return r.resource.Stats() }

// State is the state of a block.
func (r *Runtime) State(id BlockID) BlockState { return r.resource.State(id) }

// DroppedRecorders counts recorders that were dropped without an end.
func (r *Runtime) DroppedRecorders() uint64 { return r.dropped.Load() }

// admit refuses new work on a runtime that is being closed or whose device is lost.
func (r *Runtime) admit(op string) error {
	if r != nil && !r.refuses.Load() {
		return nil
	}
	return r.refusal(op)
}

// refusal is why new work is refused, nil if it is not.
func (r *Runtime) refusal(op string) error {
	if err := r.refusalOfReturn(op); err != nil {
		return err
	}
	if r.closing.Load() {
		return fmt.Errorf("%s refused: the runtime is %w", op, ErrClosed)
	}
	return nil
}

// admitReturn refuses to take something back on a runtime that is closed or whose device
// is lost.
func (r *Runtime) admitReturn(op string) error {
	if r != nil && !r.refuses.Load() {
		return nil
	}
	return r.refusalOfReturn(op)
}

// refusalOfReturn is why what is given back is refused, nil if it is not.
func (r *Runtime) refusalOfReturn(op string) error {
	if r == nil {
		return missingRuntime(op)
	}
	if f := r.lost.Load(); f != nil {
		return fmt.Errorf("%s refused: the device was lost in %s: %w", op, f.op, f.err)
	}
	if r.closed.Load() {
		return fmt.Errorf("%s refused: the runtime is %w", op, ErrClosed)
	}
	return nil
}

// observe looks at an error on its way out. The first sticky one loses the
// device: the driver would answer every later call with it, so the runtime
// says so once and stops asking.
func (r *Runtime) observe(op string, err error) error {
	if err != nil && errors.Is(err, ErrSticky) {
		r.sticky.Add(1)
		r.lose(op, err)
	}
	return err
}
