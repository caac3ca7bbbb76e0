package core_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
)

// ends is how a runtime's launches ended so far.
func ends(rt *core.Runtime) [3]uint64 {
	s := rt.Stats()
	return [3]uint64{s.Launches, s.Aborts, s.OpenIntents}
}

var (
	finishedOne = [3]uint64{1, 0, 0}
	abortedOne  = [3]uint64{0, 1, 0}
	nothingYet  = [3]uint64{0, 0, 0}
)

func TestLaunchFencesAroundItsFunction(t *testing.T) {
	seen := new(watched)
	rt := seen.runtime(t)
	b := alloc(t, rt, 64)
	ran := false
	err := rt.LaunchNamed(t.Context(), "sort", 3, []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
		ran = true
		mustBe(t, "open intents inside the launch", rt.Stats().OpenIntents, uint64(1))
		return nil
	})
	succeed(t, "launch", err)
	mustBe(t, "whether the function ran", ran, true)
	mustBe(t, "launches, aborts, open", ends(rt), finishedOne)
	mustBe(t, "name", seen.request.Launch, "sort")
	mustBe(t, "stream", seen.request.Stream, core.StreamID(3))
	mustBe(t, "whether it waits for other launches", seen.request.Wait, true)
}

func TestLaunchFinishesAfterAnError(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	uses := []core.Use{{Block: alloc(t, rt, 64).ID, Access: core.Write}}
	err := rt.Launch(t.Context(), 1, uses, func(context.Context) error { return io.ErrUnexpectedEOF })
	mustBe(t, "whether the error is the function's", errors.Is(err, io.ErrUnexpectedEOF), true)
	mustBe(t, "launches, aborts, open", ends(rt), finishedOne)
}

func TestLaunchAbortsWhenNothingWasEnqueued(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	uses := []core.Use{{Block: alloc(t, rt, 64).ID, Access: core.Write}}
	err := rt.Launch(t.Context(), 1, uses, func(context.Context) error { return core.NotEnqueued(io.EOF) })
	mustBe(t, "whether the error is the function's", errors.Is(err, io.EOF), true)
	mustBe(t, "launches, aborts, open", ends(rt), abortedOne)
}

func TestLaunchFinishesAndPanicsOn(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	uses := []core.Use{{Block: alloc(t, rt, 64).ID, Access: core.Write}}
	defer func() {
		mustBe(t, "what was recovered", recover(), any("kernel arguments"))
		mustBe(t, "launches, aborts, open", ends(rt), finishedOne)
	}()
	err := rt.Launch(t.Context(), 1, uses, func(context.Context) error { panic("kernel arguments") })
	t.Errorf("a launch that panicked returned %v", err)
}

func TestLaunchFinishesWhenItsGoroutineExits(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	uses := []core.Use{{Block: alloc(t, rt, 64).ID, Access: core.Write}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = rt.Launch(context.Background(), 1, uses, func(context.Context) error { runtime.Goexit(); return nil })
	}()
	<-done
	mustBe(t, "launches, aborts, open", ends(rt), finishedOne)
}

func TestLaunchRunsNothingUnprepared(t *testing.T) {
	rt, fake, _ := fakeRuntime(t)
	b := alloc(t, rt, 64)
	fake.FailNext("PrepareUse", io.ErrClosedPipe)
	err := rt.Launch(t.Context(), 1, []core.Use{{Block: b.ID, Access: core.Read}}, func(context.Context) error {
		t.Error("the function ran although its waits were not queued")
		return nil
	})
	mustBe(t, "whether the error is prepare's", errors.Is(err, io.ErrClosedPipe), true)
	mustBe(t, "launches, aborts, open", ends(rt), nothingYet)
}

func TestLaunchJoinsTheErrorsOfFunctionAndFinish(t *testing.T) {
	rt, fake, _ := fakeRuntime(t)
	uses := []core.Use{{Block: alloc(t, rt, 64).ID, Access: core.Write}}
	fake.FailNext("FinishUse", io.ErrShortWrite)
	err := rt.Launch(t.Context(), 1, uses, func(context.Context) error { return io.ErrNoProgress })
	for _, want := range []error{io.ErrShortWrite, io.ErrNoProgress} {
		mustBe(t, "whether "+want.Error()+" is among "+err.Error(), errors.Is(err, want), true)
	}
	fake.FailNext("FinishUse", io.ErrShortBuffer)
	err = rt.Launch(t.Context(), 1, uses, func(context.Context) error { return nil })
	mustBe(t, "whether a failed finish alone is returned", errors.Is(err, io.ErrShortBuffer), true)
}

func TestLaunchWaitsForAConflictUntilItsContextEnds(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	b := alloc(t, rt, 64)
	holder, err := rt.PrepareBlockUse(t.Context(), b.ID, 1, core.Write)
	succeed(t, "prepare", err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	uses := []core.Use{{Block: b.ID, Access: core.Read}}
	err = rt.Launch(ctx, 2, uses, func(context.Context) error { t.Error("launched into a conflict"); return nil })
	mustBe(t, "whether the launch ended with its context", errors.Is(err, context.DeadlineExceeded), true)
	succeed(t, "finish", rt.FinishBlockUse(t.Context(), holder))
	succeed(t, "launch after the conflict", rt.Launch(t.Context(), 2, uses, func(context.Context) error { return nil }))
}

// bare is a resource with nothing but intents: what it does not override
// would crash.
type bare struct {
	core.Resource
	layer context.Context
}

func (b *bare) Ordinal() int { return 0 }

func (b *bare) PrepareUse(_ context.Context, r core.UseRequest) (core.Ticket, error) {
	in, err := core.OpenIntent(b, &r)
	if err != nil {
		return core.Ticket{}, err
	}
	in.Context = b.layer
	return in.Ticket(b), nil
}

func (b *bare) FinishUse(_ context.Context, t core.Ticket) error {
	in, err := t.End(b, "FinishUse")
	if err == nil {
		in.Recycle()
	}
	return err
}

func TestLaunchPassesOnALayersContext(t *testing.T) {
	layer := context.WithValue(t.Context(), contextKey{}, "launch span")
	rt := newRuntime(t, &bare{layer: layer}, nil)
	succeed(t, "launch", rt.Launch(t.Context(), 1, nil, func(ctx context.Context) error {
		mustBe(t, "value in the context", ctx.Value(contextKey{}), any("launch span"))
		return nil
	}))
}

func TestFirstUseNeedsTrackedMemory(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	b := alloc(t, rt, 64)
	ticket, err := rt.PrepareFirstUse(t.Context(), b, 2, core.Write)
	succeed(t, "prepare", err)
	mustBe(t, "stream", ticket.Intent().Stream, core.StreamID(2))
	succeed(t, "finish", rt.FinishFirstUse(t.Context(), ticket))
	mustBe(t, "launches, aborts, open", ends(rt), finishedOne)
	for _, memory := range []core.Tracked{legacy, empty} {
		_, err = rt.PrepareFirstUse(t.Context(), memory, 2, core.Write)
		misuse(t, "prepare of memory without a block", err, "not runtime-backed")
	}
}

func TestLaunchOverAnInjectedFault(t *testing.T) {
	faults := coretest.NewFaults(coretest.NewFake(0), coretest.Fault{Method: "PrepareUse", Call: 2, Err: io.ErrClosedPipe, After: true})
	rt := newRuntime(t, faults, nil)
	uses := []core.Use{{Block: alloc(t, rt, 64).ID, Access: core.Write}}
	ran := 0
	for range 3 {
		_ = rt.Launch(t.Context(), 1, uses, func(context.Context) error { ran++; return nil })
	}
	mustBe(t, "functions that ran", ran, 2)
	mustBe(t, "faults that fired", faults.Fired(), 1)
	mustBe(t, "launches, aborts, open", ends(rt), [3]uint64{2, 1, 0})
}

// seeing is a fake that notes the request of the last launch.
type seeing struct {
	*coretest.Fake
	req core.UseRequest
}

func (s *seeing) PrepareUse(ctx context.Context, req core.UseRequest) (core.Ticket, error) {
	s.req = req
	return s.Fake.PrepareUse(ctx, req)
}

func TestLaunchWithPassesTheWholeRequestOnAndWaits(t *testing.T) {
	upstream := &seeing{Fake: coretest.NewFake(0)}
	rt := newRuntime(t, upstream, nil)
	b := alloc(t, rt, 64)
	launched := false
	err := rt.LaunchWith(t.Context(), core.UseRequest{Stream: 1, Launch: "kernel", Pointers: []uint64{7, 8},
		Uses: []core.Use{{Block: b.ID, Access: core.Write}}}, func(context.Context) error { launched = true; return nil })
	succeed(t, "launch", err)
	mustBe(t, "whether it was launched", launched, true)
	mustBe(t, "name", upstream.req.Launch, "kernel")
	mustBe(t, "whether it waits", upstream.req.Wait, true)
	mustBe(t, "number of pointers", len(upstream.req.Pointers), 2)
	mustBe(t, "open intents", rt.Stats().OpenIntents, uint64(0))
}
