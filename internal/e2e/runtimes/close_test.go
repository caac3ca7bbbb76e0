package runtimes_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestCloseListsLeaksWithTagsAndStacks(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "hunt"})
	leaked := e2e.Allocate(t, rt, 3000, core.DefaultStream, "index.build")
	e2e.Free(t, rt, e2e.Allocate(t, rt, 500, core.DefaultStream, "sort"))

	left := must.Get(rt.Close(t.Context()))(t)
	if len(left.Leaks) != 1 || left.LeakedBytes != 3000 || left.OpenIntents != 0 {
		t.Fatalf("left over: %+v", left)
	}
	leak := left.Leaks[0]
	if leak.Block.ID.Generation != leaked.ID.Generation || leak.Block.Tag != "index.build" || leak.Block.Requested != 3000 {
		t.Errorf("the leak is %+v, want %+v", leak.Block, leaked)
	}
	if stack := strings.Join(leak.AllocStack.Lines(), "\n"); !strings.Contains(stack, "TestCloseListsLeaksWithTagsAndStacks") {
		t.Errorf("the stack does not show who allocated it:\n%s", stack)
	}
	found := rt.Findings().Recent()
	if len(found) != 1 || found[0].Kind != names.FindingLeak || found[0].Victim.ID.Generation != leaked.ID.Generation {
		t.Errorf("findings: %v", found)
	}
}

func TestCloseKnowsLeaksWithTheGuardOff(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "off"})
	e2e.Allocate(t, rt, 3000, core.DefaultStream, "index.build")
	left, err := rt.Close(t.Context())
	if err != nil || len(left.Leaks) != 1 || left.Leaks[0].Block.Tag != "index.build" || left.LeakedBytes != 3000 {
		t.Errorf("%+v, %v", left, err)
	}
}

func TestCloseReportsLaunchesThatNobodyEnded(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{})
	b := e2e.Allocate(t, rt, 64, core.DefaultStream, "a")
	ticket := must.Get(rt.Core().PrepareBlockUse(t.Context(), b.ID, core.DefaultStream, core.Write))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	left, _ := rt.Close(ctx)
	if left.OpenIntents != 1 {
		t.Errorf("%d open intents, want 1", left.OpenIntents)
	}
	if !ticket.IsOpen() {
		t.Error("Close ended the ticket")
	}
}

func TestASecondCloseReturnsWhatTheFirstDid(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{})
	e2e.Allocate(t, rt, 3000, core.DefaultStream, "index.build")
	first, firstErr := rt.Close(t.Context())
	second, secondErr := rt.Close(t.Context())
	if len(second.Leaks) != len(first.Leaks) || second.LeakedBytes != first.LeakedBytes || !errors.Is(secondErr, firstErr) {
		t.Errorf("first %+v, %v; second %+v, %v", first, firstErr, second, secondErr)
	}
	if got := rt.Findings().Total(); got != 1 {
		t.Errorf("the leak was found %d times", got)
	}
}

func TestAClosedRuntimeRefusesWork(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	b := e2e.Allocate(t, rt, 64, core.DefaultStream, "a")
	e2e.Free(t, rt, b)
	must.Get(rt.Close(t.Context()))(t)
	_, allocErr := rt.Allocate(t.Context(), core.Request{Bytes: 64})
	_, freeErr := rt.Deallocate(t.Context(), b.ID)
	_, reserveErr := rt.Reserve(t.Context(), 64, "a")
	launchErr := rt.Launch(t.Context(), core.DefaultStream, []core.Use{{Block: b.ID, Access: core.Read}}, func(context.Context) error {
		t.Error("a launch on a closed runtime ran")
		return nil
	})
	_, typedErr := cuda.Alloc[uint32](t.Context(), rt.Memory(), 16, cuda.AllocOptions{})
	_, leaseErr := rt.Streams().Acquire(t.Context(), "a")
	for i, err := range []error{allocErr, freeErr, reserveErr, launchErr, typedErr, leaseErr} {
		if !errors.Is(err, core.ErrClosed) {
			t.Errorf("call %d: %v, want %v", i, err, core.ErrClosed)
		}
	}
	if h := rt.Health(); h.OK || h.Reason != "closed" {
		t.Errorf("health %+v", h)
	}
}

// A lease that is still out keeps its stream, but not Close.
func TestCloseIsBoundedByItsContextWithLeasesOut(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{CloseTimeout: time.Hour})
	held, err := rt.Streams().Acquire(t.Context(), "forgotten.lease")
	must.Do(t, err)
	defer func() {
		expect.Success(t, held.Release())
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = rt.Close(ctx)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("Close took %v with 100ms to do it in", took)
	}
	if err == nil || !strings.Contains(err.Error(), "forgotten.lease") || !strings.Contains(err.Error(), "TestCloseIsBounded") {
		t.Errorf("got %v, want the lease with its tag and where it was taken", err)
	}
}

// Work that never ends keeps the device from passing the frees behind it.
func TestCloseIsBoundedByItsContextOnAStuckDevice(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{CloseTimeout: time.Hour})
	s := e2e.Lease(t, rt, "stuck")
	b := e2e.Allocate(t, rt, 4096, s.ID(), "stuck")
	release, err := e2e.Simulated(rt).Hold(s.Handle())
	must.Do(t, err)
	defer release()
	e2e.Free(t, rt, b)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = rt.Close(ctx)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("Close took %v with 100ms to do it in", took)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
}

func TestCloseWithoutADeadlineTakesTheConfigsTimeout(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{CloseTimeout: 100 * time.Millisecond})
	held, err := rt.Streams().Acquire(t.Context(), "forgotten.lease")
	must.Do(t, err)
	if _, err := rt.Close(context.Background()); err == nil {
		t.Error("a forgotten lease went unnoticed")
	}
	expect.Success(t, held.Release())
}

func TestCloseLeavesTheDeviceEmpty(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Guard: "hunt"})
	s := e2e.Lease(t, rt, "a")
	for range 100 {
		e2e.Free(t, rt, e2e.Allocate(t, rt, 4096, s.ID(), "a"))
	}
	must.Do(t, s.Release())
	device := e2e.Simulated(rt)
	must.Get(rt.Close(t.Context()))(t)
	if b := device.Books(); b.LiveBlocks != 0 || b.HostBlocks != 0 || b.Streams != 0 || b.Events != 0 || b.Pools != 0 || b.Modules != 0 {
		t.Errorf("the device holds %+v", b)
	}
}

// A guard waits for its comparisons at the end, and no longer than it may.
func TestCloseIsBoundedOnADeviceThatDoesNotAnswerTheGuard(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "hunt"})
	l := e2e.Lease(t, rt, "x")
	device := e2e.Simulated(rt)
	device.NeverReadyAt(1)
	defer device.ReleaseEvents()
	e2e.Free(t, rt, e2e.Allocate(t, rt, 4096, l.ID(), "victim"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := rt.Close(ctx); err == nil {
		t.Error("nothing was wrong with the end")
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("Close took %v", took)
	}
}

// The end of a service under load: jobs that are under way end well or are refused what is
// new, and no block of theirs is a leak.
func TestCloseUnderLoadLeavesNothing(t *testing.T) {
	for _, resource := range []fencepost.Backend{fencepost.Async, fencepost.Pool} {
		t.Run(string(resource), func(t *testing.T) {
			rt := e2e.OpenDirty(t, fencepost.Config{Resource: resource, Guard: "hunt", Streams: 4})
			var jobs sync.WaitGroup
			var done atomic.Int64
			for range 8 {
				jobs.Go(func() {
					for {
						held := false
						err := rt.Do(context.Background(), "request", func(j *fencepost.Job) error {
							if _, err := fencepost.Upload(j, make([]byte, 4<<10)); err != nil {
								return err
							}
							held = true
							time.Sleep(time.Millisecond)
							return nil
						}, fencepost.Reserve(4<<10, time.Minute))
						switch {
						case err == nil:
							done.Add(1)
						case held || !errors.Is(err, core.ErrClosed):
							t.Errorf("a job that had its memory (%v): %v", held, err)
							return
						default:
							return
						}
					}
				})
			}
			for done.Load() < 50 {
				time.Sleep(time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			left, err := rt.Close(ctx)
			jobs.Wait()
			if err != nil || left.String() != "nothing" || len(rt.Findings().Recent()) > 0 {
				t.Errorf("%v, %v, findings %v", left, err, rt.Findings().Recent())
			}
		})
	}
}
