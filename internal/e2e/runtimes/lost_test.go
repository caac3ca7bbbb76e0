package runtimes_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// A lost device answers every call with the same error for the rest of the
// process. The runtime learns it once, says so, and stops asking.
func TestALostDeviceRefusesEverythingAtOnce(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{Resource: fencepost.Async}) // whose allocations call the driver
	s := e2e.Lease(t, rt, "a")
	b := e2e.Allocate(t, rt, 4096, s.ID(), "a")
	e2e.Simulated(rt).LoseContext(driver.IllegalAddress)
	if _, err := rt.Allocate(t.Context(), core.Request{Bytes: 64, Stream: s.ID()}); !errors.Is(err, core.ErrSticky) {
		t.Fatalf("the call that meets the loss: %v", err)
	}

	calls := driverCalls(rt)
	_, allocErr := rt.Allocate(t.Context(), core.Request{Bytes: 64, Stream: s.ID()})
	_, freeErr := rt.Deallocate(t.Context(), b.ID)
	_, reserveErr := rt.Reserve(t.Context(), 64, "a")
	_, prepareErr := rt.Core().PrepareBlockUse(t.Context(), b.ID, s.ID(), core.Read)
	recordErr := rt.Core().RecordBlockUse(t.Context(), b.ID, s.ID())
	launchErr := rt.Launch(t.Context(), s.ID(), nil, func(context.Context) error { return errors.New("the launch ran") })
	for i, err := range []error{allocErr, freeErr, reserveErr, prepareErr, recordErr, launchErr} {
		if !errors.Is(err, core.ErrSticky) || !strings.Contains(err.Error(), "device was lost") {
			t.Errorf("call %d: %v, want a refusal that says the device was lost", i, err)
		}
	}
	if got := driverCalls(rt); got != calls {
		t.Errorf("the refusals made %d driver calls", got-calls)
	}
	if h := rt.Health(); h.OK || !errors.Is(h.Err, core.ErrSticky) {
		t.Errorf("health %+v", h)
	}
	found := rt.Findings().Recent()
	if len(found) != 1 || found[0].Kind != names.FindingStickyError {
		t.Errorf("findings %v, want the loss, once", found)
	}
}

// A device is lost once, however many errors say so.
func TestALostDeviceIsCountedOnce(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{})
	s := e2e.Lease(t, rt, "a")
	if got := e2e.Scrape(t, rt); got["gpumem_device_lost"] != 0 || got["gpumem_sticky_errors_total"] != 0 {
		t.Errorf("before: lost %v, errors %v", got["gpumem_device_lost"], got["gpumem_sticky_errors_total"])
	}
	e2e.Simulated(rt).LoseContext(driver.IllegalAddress)
	const errs = 10
	for range errs {
		if err := rt.Streams().Synchronize(t.Context(), s.ID()); !errors.Is(err, core.ErrSticky) {
			t.Fatalf("synchronising: %v", err)
		}
	}
	if got := e2e.Scrape(t, rt); got["gpumem_device_lost"] != 1 || got["gpumem_sticky_errors_total"] < errs {
		t.Errorf("lost %v, errors %v, want 1 and %d at least", got["gpumem_device_lost"], got["gpumem_sticky_errors_total"], errs)
	}
	_ = s.Release() // Close would wait for it
	_, _ = rt.Close(t.Context())
	if got := e2e.Scrape(t, rt)["gpumem_device_lost"]; got != 1 {
		t.Errorf("after Close: lost %v", got)
	}
}

// The pool of streams is not the runtime, and yet often the first to meet a
// lost device: a service waits for its streams far more than it allocates.
func TestALossThatTheStreamsMeetIsTheRuntimesToo(t *testing.T) {
	for name, meet := range map[string]func(*fencepost.Runtime, *cuda.Lease) error{
		"Synchronize": func(rt *fencepost.Runtime, l *cuda.Lease) error { return rt.Streams().Synchronize(t.Context(), l.ID()) },
		"Acquire": func(rt *fencepost.Runtime, _ *cuda.Lease) error {
			_, err := rt.Streams().Acquire(t.Context(), "b")
			return err
		},
		"TryAcquire": func(rt *fencepost.Runtime, _ *cuda.Lease) error {
			_, err := rt.Streams().TryAcquire(t.Context(), "b")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			rt := e2e.OpenDirty(t, fencepost.Config{Guard: "ledger"})
			s := e2e.Lease(t, rt, "a")
			e2e.Simulated(rt).LoseContext(driver.IllegalAddress)
			if err := meet(rt, s); !errors.Is(err, core.ErrSticky) {
				t.Fatalf("the call that meets the loss: %v", err)
			}
			if h := rt.Health(); h.OK || !strings.Contains(h.Reason, name) {
				t.Errorf("health %+v", h)
			}
			if found := rt.Findings().Recent(); len(found) != 1 || found[0].Kind != names.FindingStickyError {
				t.Errorf("findings %v, want the loss, once", found)
			}
		})
	}
}

// driverCalls counts the allocations, frees, records and waits that reached
// the driver. The reaper's queries go on by themselves and are left out.
func driverCalls(rt *fencepost.Runtime) (n uint64) {
	for method, count := range e2e.Simulated(rt).Calls() {
		if strings.HasPrefix(method, "Mem") || method == "EventRecord" || method == "StreamWait" {
			n += count
		}
	}
	return n
}

func TestCloseOfALostDeviceReturnsOneError(t *testing.T) {
	for _, guard := range []string{"off", "sample", "hunt"} {
		rt := e2e.OpenDirty(t, fencepost.Config{Guard: fencepost.GuardMode(guard)})
		s := e2e.Lease(t, rt, "a")
		for range 20 {
			e2e.Allocate(t, rt, 4096, s.ID(), "a")
		}
		e2e.Free(t, rt, e2e.Allocate(t, rt, 4096, s.ID(), "a"))
		must.Do(t, s.Release())
		e2e.Simulated(rt).LoseContext(driver.IllegalAddress)
		if _, err := rt.Allocate(t.Context(), core.Request{Bytes: 64}); !errors.Is(err, core.ErrSticky) {
			t.Fatal(err)
		}
		began := time.Now()
		left, err := rt.Close(t.Context())
		if took := time.Since(began); took > time.Minute {
			t.Errorf("guard %s: Close took %v", guard, took)
		}
		if !errors.Is(err, core.ErrSticky) || strings.Contains(err.Error(), "\n") {
			t.Errorf("guard %s: got %v, want the loss and nothing else", guard, err)
		}
		if len(left.Leaks) != 0 {
			t.Errorf("guard %s: %d leaks of a device that takes nothing back", guard, len(left.Leaks))
		}
	}
}

// Wherever in a life the device is lost, the caller hears of it, the launch
// function's blocks stay refused, and Close returns.
func TestADeviceLostAtAnyCallIsNoticed(t *testing.T) {
	for call := uint64(1); ; call++ {
		rt := e2e.OpenDirty(t, fencepost.Config{Resource: fencepost.Async, Guard: "hunt"})
		e2e.Simulated(rt).StickyAt(call, driver.IllegalAddress)
		err := e2e.Life(t.Context(), rt)
		_, closeErr := rt.Close(t.Context())
		switch {
		case err == nil && closeErr == nil:
			if call < 10 {
				t.Errorf("a life of only %d driver calls", call-1)
			}
			return
		case err != nil && !errors.Is(err, core.ErrSticky), closeErr != nil && !errors.Is(closeErr, core.ErrSticky):
			t.Errorf("lost at call %d: %v; close: %v", call, err, closeErr)
		case rt.Findings().Counts()[names.FindingStickyError] != 1:
			t.Errorf("lost at call %d: findings %v, want one of the loss", call, rt.Findings().Counts())
		}
	}
}

// A life over the runtime's own pool may end before a call of the driver tells the caller of a loss
// that the guard's work has met. Close tells then, as a finding too.
func TestALossThatOnlyTheGuardHasMetIsToldByClose(t *testing.T) {
	late := 0
	for call := uint64(1); ; call++ {
		rt := e2e.OpenDirty(t, fencepost.Config{Guard: "hunt", Resource: fencepost.Pool, Pool: cuda.PoolConfig{ReapInterval: -1}})
		e2e.Simulated(rt).StickyAt(call, driver.IllegalAddress)
		err := e2e.Life(t.Context(), rt)
		if err != nil && !errors.Is(err, core.ErrSticky) {
			late++
		}
		_, closeErr := rt.Close(t.Context())
		if err == nil && closeErr == nil {
			break
		}
		if !errors.Is(closeErr, core.ErrSticky) || rt.Findings().Counts()[names.FindingStickyError] != 1 {
			t.Errorf("lost at call %d: %v; close: %v; findings %v", call, err, closeErr, rt.Findings().Counts())
		}
	}
	if late == 0 {
		t.Error("the life told of each loss itself")
	}
}

// A kernel runs wild and a copy of its results waits behind it: the kernel is named first.
func TestTheKernelThatLostTheDeviceIsNamedBeforeTheCopyBehindIt(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{})
	k := loadAdd(t, rt)
	err := rt.Do(t.Context(), "job", func(j *fencepost.Job) error {
		from, err := fencepost.Upload(j, []uint32{1, 2})
		to, allocErr := fencepost.Alloc[uint32](j, 2)
		e2e.Succeed(t, "memory", errors.Join(err, allocErr))
		release, err := e2e.Simulated(rt).Hold(j.Stream().Handle()) // until the copy is enqueued
		e2e.Succeed(t, "hold", err)
		defer release()
		err = j.Launch(k, cuda.Blocks1D(2, 32), fencepost.Writes(to), fencepost.Reads(from), fencepost.Value(uint32(1<<30)), fencepost.Value(uint32(1)))
		e2e.Succeed(t, "launch", err)
		values := make([]uint32, 2)
		e2e.Succeed(t, "copy", cuda.CopyToHost(t.Context(), values, to, j.Stream().ID()))
		return nil
	})
	if !errors.Is(err, core.ErrSticky) {
		t.Fatalf("the job says %v", err)
	}
	f := e2e.Single(t, rt, names.FindingStickyError)
	if len(f.Suspects) < 2 || f.Suspects[0].Launch != "add" || f.Suspects[len(f.Suspects)-1].Launch == "add" {
		t.Errorf("in flight: %v", f.Suspects)
	}
}

// The simulated device knows whose work lost it. That launch is the first suspect, whatever it
// declared, and others that were in flight come behind it, also one of the same name.
func TestTheLaunchThatLostTheDeviceIsTheFirstSuspect(t *testing.T) {
	faulty := map[string]sim.Kernel{
		"nothing mapped": {Name: "same", Run: func(x *sim.Exec) { sim.WriteSlice[byte](x, x.Args().Ptr(0), 10)[0] = 1 }},
		"a panic":        {Name: "same", Run: func(*sim.Exec) { panic("bug") }},
	}
	for what, kernel := range faulty {
		for _, withBlock := range []bool{false, true} {
			for _, guard := range []fencepost.GuardMode{fencepost.GuardOff, fencepost.GuardHunt} {
				rt := e2e.OpenDirty(t, fencepost.Config{Device: fencepost.Sim, Guard: guard})
				bad := must.Get(must.Get(rt.Load("bad", nil, kernel))(t).Kernel("same"))(t)
				good := must.Get(must.Get(rt.Load("good", nil, sim.Kernel{Name: "same", Run: func(*sim.Exec) {}}))(t).Kernel("same"))(t)
				l, other := e2e.Lease(t, rt, "bad"), e2e.Lease(t, rt, "good")
				b, c := e2e.Allocate(t, rt, 1000, l.ID(), "bad"), e2e.Allocate(t, rt, 1000, other.ID(), "good")
				release := e2e.Hold(t, rt, other.Handle())
				for range 3 {
					must.Do(t, good.Launch(t.Context(), rt, other, cuda.Blocks1D(1, 1), []core.Use{{Block: c.ID, Access: core.Write}}))
				}
				var uses []core.Use
				if withBlock {
					uses = []core.Use{{Block: b.ID, Access: core.Write}}
				}
				err := bad.Launch(t.Context(), rt, l, cuda.Blocks1D(1, 1), uses, driver.Ptr(8))
				if err != nil && !errors.Is(err, core.ErrSticky) { // the device may be lost before Launch returns
					t.Fatalf("%s: %v", what, err)
				}
				for end := time.Now().Add(20 * time.Second); rt.Findings().Counts()[names.FindingStickyError] == 0; {
					if time.Now().After(end) {
						t.Fatalf("%s: the loss is not found", what)
					}
					_ = rt.Streams().Synchronize(t.Context(), l.ID())
				}
				release()
				for _, f := range rt.Findings().Recent() {
					if f.Kind != names.FindingStickyError {
						continue
					}
					var first core.UseRecord
					if len(f.Suspects) > 0 {
						first = f.Suspects[0]
					}
					others := slices.ContainsFunc(f.Suspects, func(u core.UseRecord) bool { return u.Stream == other.ID() })
					again := slices.ContainsFunc(f.Suspects[min(1, len(f.Suspects)):], func(u core.UseRecord) bool { return u.LaunchID == first.LaunchID })
					if first.Launch != "same" || first.Stream != l.ID() || first.LaunchID == 0 || !others || again {
						t.Errorf("%s, with a block: %v, %s: %v; suspects %+v", what, withBlock, guard, f.Text, f.Suspects)
					}
				}
			}
		}
	}
}
