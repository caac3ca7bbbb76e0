package coretest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// patience bounds everything that should end at once, on the slowest machine.
var patience = time.Minute

// trial is one case under way. Methods that stop the test may be called only
// from its own goroutine; those that return an error or only check, from any.
type trial struct {
	testing.TB
	Subject
	ctx    context.Context
	before core.Stats
	books  *books
	checks atomic.Int64
}

func newTrial(t *testing.T, s Subject) *trial {
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	t.Cleanup(cancel)
	tr := &trial{TB: t, Subject: s, ctx: ctx, before: s.Resource.Stats(), books: newBooks()}
	s.Resource.Subscribe(tr.books)
	return tr
}

// conduct runs the case and then demands that nothing is left of it.
func (t *trial) conduct(c testCase) {
	t.Helper()
	c.run(t)
	if t.Failed() {
		return
	}
	if t.checks.Load() == 0 {
		t.Errorf("the case checked nothing")
	}
	t.drain()
	s := t.Resource.Stats()
	t.check(s.Outstanding() == t.before.Outstanding(), "outstanding after the case: %+v, before it: %+v", s.Outstanding(), t.before.Outstanding())
	t.check(s.OpenIntents == 0, "%d intents are still open", s.OpenIntents)
	t.check(s.Underflows == 0, "%d counters went below zero", s.Underflows)
	t.check(s.Poisoned == 0, "%d blocks are poisoned", s.Poisoned)
	t.books.settle(t)
}

// check reports a failure unless ok.
func (t *trial) check(ok bool, format string, args ...any) {
	t.Helper()
	t.checks.Add(1)
	if !ok {
		t.Errorf(format, args...)
	}
}

// succeed stops the test if err is an error.
func (t *trial) succeed(err error, what string) {
	t.Helper()
	t.checks.Add(1)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// refused checks that err matches one of the targets.
func (t *trial) refused(err error, what string, targets ...error) {
	t.Helper()
	t.checks.Add(1)
	for _, target := range targets {
		if errors.Is(err, target) {
			return
		}
	}
	t.Errorf("%s: got %v, want a refusal that is %v", what, err, targets)
}

func (t *trial) tracks() bool { return t.Features.Has(core.UseTracking) }

func (t *trial) alloc(bytes uint64, stream core.StreamID) core.Block {
	t.Helper()
	b, err := t.allocate(core.Request{Bytes: bytes, Stream: stream, Tag: "conformance"})
	t.succeed(err, fmt.Sprintf("allocate %d bytes on stream %v", bytes, stream))
	return b
}

// allocate is Allocate with the books kept.
func (t *trial) allocate(r core.Request) (core.Block, error) {
	b, err := t.Resource.Allocate(t.ctx, r)
	if err == nil {
		t.books.allocated(b, r.Bytes)
	}
	return b, err
}

func (t *trial) free(b core.Block) core.Block {
	t.Helper()
	freed, err := t.Resource.Deallocate(t.ctx, b.ID)
	t.succeed(err, fmt.Sprintf("deallocate %v", b.ID))
	return freed
}

func (t *trial) tryFree(b core.Block) error {
	_, err := t.Resource.Deallocate(t.ctx, b.ID)
	return err
}

// tryPrepare opens an intent and does not wait for others.
func (t *trial) tryPrepare(stream core.StreamID, launch string, uses ...core.Use) (core.Ticket, error) {
	return t.Resource.PrepareUse(t.ctx, core.UseRequest{Stream: stream, Launch: launch, Uses: uses})
}

func (t *trial) prepare(stream core.StreamID, access core.Access, b core.Block) core.Ticket {
	t.Helper()
	ticket, err := t.tryPrepare(stream, "holder", core.Use{Block: b.ID, Access: access})
	t.succeed(err, fmt.Sprintf("prepare %v of %v on stream %v", access, b.ID, stream))
	return ticket
}

func (t *trial) finish(ticket core.Ticket) {
	t.Helper()
	t.succeed(t.Resource.FinishUse(t.ctx, ticket), "finish")
}

func (t *trial) abort(ticket core.Ticket) {
	t.Helper()
	t.succeed(t.Resource.AbortUse(t.ctx, ticket), "abort")
}

// launch does work between prepare and finish; without use tracking the
// caller orders the streams itself, and only the work is done.
func (t *trial) launch(stream core.StreamID, access core.Access, b core.Block, work func() error) error {
	if !t.tracks() {
		return work()
	}
	ticket, err := t.Resource.PrepareUse(t.ctx, core.UseRequest{Stream: stream, Launch: "conformance", Wait: true,
		Uses: []core.Use{{Block: b.ID, Access: access}}})
	if err != nil {
		return fmt.Errorf("prepare %v of %v on stream %v: %w", access, b.ID, stream, err)
	}
	return errors.Join(work(), t.Resource.FinishUse(t.ctx, ticket))
}

func (t *trial) drain() {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	t.succeed(t.Resource.Drain(ctx), "drain")
}

// promptly runs f and fails the test if it does not return soon. It reports
// whether f returned.
func (t *trial) promptly(what string, f func()) bool {
	t.Helper()
	t.checks.Add(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		return true
	case <-time.After(patience):
		t.Errorf("%s has not returned after %v", what, patience)
		return false
	}
}

// together runs f in n goroutines and reports their errors.
func (t *trial) together(n int, f func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			t.checks.Add(1)
			if err := f(i); err != nil {
				t.Errorf("goroutine %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}
