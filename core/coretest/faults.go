package coretest

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

// Fault is one failure to inject.
type Fault struct {
	// Method is the method of [core.Resource] to fail, such as "Allocate".
	Method string
	// Call is the number of the call to fail, from 1 on, counted from the
	// injector's start. Zero fails every call.
	Call int
	// Err is what the call returns.
	Err error
	// After fails the call after its upstream did the work. What upstream
	// handed out is given back first, so that nothing leaks.
	After bool
}

// Faults wraps a resource and makes chosen calls of it fail, to test what
// sits above. It keeps the contract that an error consumes nothing where that
// is possible: an allocation or reservation failed after the fact is undone, a
// prepared use is aborted. Two things it cannot undo: a free or a released
// claim that fails after the fact is done all the same, like an answer that
// was lost on its way; and FinishUse and AbortUse always reach upstream,
// because their tickets are spent even when they fail. It is safe for
// concurrent use.
type Faults struct {
	upstream core.Resource

	mu     sync.Mutex
	faults []Fault
	calls  map[string]int
	fired  int
}

var _ core.Resource = (*Faults)(nil)

// NewFaults wraps upstream. Without faults it changes nothing.
func NewFaults(upstream core.Resource, faults ...Fault) *Faults {
	f := &Faults{upstream: upstream, calls: map[string]int{}}
	f.Inject(faults...)
	return f
}

// Inject adds faults. A method that cannot fail is a mistake in the test and
// panics.
func (f *Faults) Inject(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range faults {
		if !failable[fault.Method] || fault.Err == nil {
			panic(fmt.Sprintf("coretest: a fault in %q with error %v can never be seen", fault.Method, fault.Err))
		}
		f.faults = append(f.faults, fault)
	}
}

// Clear removes all faults. The calls counted so far stay counted.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// Count is the number of calls of method so far.
func (f *Faults) Count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

// Fired is the number of calls that were failed so far. A test that injects
// checks it, to know that its faults were reached.
func (f *Faults) Fired() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// String is "faults(upstream)".
func (f *Faults) String() string { return "faults(" + f.upstream.String() + ")" }

var failable = map[string]bool{"Allocate": true, "Deallocate": true, "PrepareUse": true, "FinishUse": true, "AbortUse": true,
	"RecordUse": true, "Reserve": true, "ReleaseClaim": true, "ReapPending": true, "Drain": true}

// next counts a call and returns the errors to answer it with, before and
// after upstream.
func (f *Faults) next(method string) (before, after error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[method]++
	for _, fault := range f.faults {
		if fault.Method != method || fault.Call != 0 && fault.Call != f.calls[method] {
			continue
		}
		f.fired++
		if fault.After {
			return nil, fault.Err
		}
		return fault.Err, nil
	}
	return nil, nil
}

// Allocate forwards, or fails; a block that was handed out by then is given
// back.
func (f *Faults) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	return answer(f, "Allocate", func() (core.Block, error) { return f.upstream.Allocate(ctx, r) },
		func(b core.Block) { _, _ = f.upstream.Deallocate(ctx, b.ID) })
}

// Deallocate forwards, or fails.
func (f *Faults) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	return answer(f, "Deallocate", func() (core.Block, error) { return f.upstream.Deallocate(ctx, id) }, nil)
}

// PrepareUse forwards, or fails; an intent that was open by then is aborted.
func (f *Faults) PrepareUse(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
	return answer(f, "PrepareUse", func() (core.Ticket, error) { return f.upstream.PrepareUse(ctx, r) },
		func(t core.Ticket) { _ = f.upstream.AbortUse(ctx, t) })
}

// answer makes a call unless it is to fail. If it is to fail after the fact, undo
// gives back what upstream handed out.
func answer[T any](f *Faults, method string, call func() (T, error), undo func(T)) (none T, err error) {
	before, after := f.next(method)
	if before != nil {
		return none, before
	}
	v, err := call()
	if err != nil || after == nil {
		return v, err
	}
	if undo != nil {
		undo(v)
	}
	return none, after
}

// FinishUse forwards and then fails, if it is to fail.
func (f *Faults) FinishUse(ctx context.Context, t core.Ticket) error {
	before, after := f.next("FinishUse")
	return cmp.Or(f.upstream.FinishUse(ctx, t), before, after)
}

// AbortUse forwards and then fails, if it is to fail.
func (f *Faults) AbortUse(ctx context.Context, t core.Ticket) error {
	before, after := f.next("AbortUse")
	return cmp.Or(f.upstream.AbortUse(ctx, t), before, after)
}

// RecordUse forwards, or fails.
func (f *Faults) RecordUse(ctx context.Context, id core.BlockID, stream core.StreamID) error {
	return f.around("RecordUse", func() error { return f.upstream.RecordUse(ctx, id, stream) })
}

// Reserve forwards, or fails; a claim that was granted by then is released.
func (f *Faults) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	return answer(f, "Reserve", func() (core.Claim, error) { return f.upstream.Reserve(ctx, bytes, tag) },
		func(c core.Claim) { _ = f.upstream.ReleaseClaim(ctx, c.ID) })
}

// ReleaseClaim forwards, or fails.
func (f *Faults) ReleaseClaim(ctx context.Context, id core.ClaimID) error {
	return f.around("ReleaseClaim", func() error { return f.upstream.ReleaseClaim(ctx, id) })
}

// ReapPending forwards, or fails.
func (f *Faults) ReapPending(ctx context.Context) error {
	return f.around("ReapPending", func() error { return f.upstream.ReapPending(ctx) })
}

// Drain forwards, or fails.
func (f *Faults) Drain(ctx context.Context) error {
	return f.around("Drain", func() error { return f.upstream.Drain(ctx) })
}

func (f *Faults) around(method string, call func() error) error {
	before, after := f.next(method)
	if before != nil {
		return before
	}
	return cmp.Or(call(), after)
}

// Ordinal is upstream's.
func (f *Faults) Ordinal() int { return f.upstream.Ordinal() }

// Features are upstream's.
func (f *Faults) Features() core.Features { return f.upstream.Features() }

// State is upstream's.
func (f *Faults) State(id core.BlockID) core.BlockState { return f.upstream.State(id) }

// Stats are upstream's.
func (f *Faults) Stats() core.Stats { return f.upstream.Stats() }

// FreedOn is upstream's.
func (f *Faults) FreedOn(id core.StreamID) core.FreeCounters { return f.upstream.FreedOn(id) }

// Subscribe forwards.
func (f *Faults) Subscribe(l core.Listener) { f.upstream.Subscribe(l) }

// Unwrap is the upstream.
func (f *Faults) Unwrap() core.Resource { return f.upstream }

// Withhold forwards, and never fails.
func (f *Faults) Withhold(id core.BlockID, as core.BlockState) { f.upstream.Withhold(id, as) }

// CheckLive forwards, or fails.
func (f *Faults) CheckLive(ctx context.Context) error {
	return f.around("CheckLive", func() error { return f.upstream.CheckLive(ctx) })
}

// Inspect is upstream's.
func (f *Faults) Inspect() core.Inspector { return f.upstream.Inspect() }
