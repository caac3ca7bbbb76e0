package runtimes_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func nothing(*fencepost.Job) error { return nil }

func TestAJobDrawsFromItsReservation(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Budget: 4096, Guard: "off"})
	e2e.Succeed(t, "the job", rt.Do(t.Context(), "job", func(j *fencepost.Job) error {
		if st := rt.Stats(); st.Claims != 1 || st.Claimed != 4096 {
			t.Errorf("reserved: %+v", st)
		}
		_, err := rt.Allocate(t.Context(), core.Request{Bytes: 1, Tag: "other"})
		expect.Error(t, err, core.ErrOutOfBudget, "beside the reservation")
		if _, err := fencepost.Alloc[byte](j, 4097); !errors.Is(err, core.ErrClaimExceeded) || errors.Is(err, core.ErrOutOfBudget) {
			t.Errorf("beyond the reservation: %v", err)
		}
		_, err = fencepost.Alloc[byte](j, 4096)
		return err
	}, fencepost.Reserve(4096, 0)))
	nothingIsHeld(t, rt)
}

func TestARefusedReservationSaysWhoHoldsTheMemory(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Budget: 4096, Guard: "off"})
	held := e2e.Allocate(t, rt, 4000, core.DefaultStream, "index")
	for name, c := range map[string]struct {
		bytes uint64
		wait  time.Duration
	}{
		"at once":              {97, 0},
		"after a wait":         {97, 5 * time.Millisecond},
		"more than the limit":  {4097, time.Hour},
		"more than there is":   {math.MaxUint64, time.Hour},
		"with a negative wait": {97, -1},
	} {
		before := rt.Stats().Refusals
		err := rt.Do(t.Context(), "job", nothing, fencepost.Reserve(c.bytes, c.wait))
		short, ok := errors.AsType[*core.OutOfBudgetError](err)
		if !ok || short.Tag != "job" || short.Requested != c.bytes || len(short.Holders) != 1 || short.Holders[0].Tag != "index" {
			t.Errorf("%s: %v", name, err)
		}
		if n := rt.Stats().Refusals - before; n != 1 {
			t.Errorf("%s: %d refusals were counted for one job", name, n)
		}
	}
	expect.Error(t, rt.Do(t.Context(), "job", nothing, fencepost.Reserve(0, time.Hour)), core.ErrInvalidRequest, "nothing reserved")
	e2e.Free(t, rt, held)
	nothingIsHeld(t, rt)
}

// refusalLog is a log sink that keeps the errors of refusals.
type refusalLog struct {
	mu  sync.Mutex
	all []error
}

func (r *refusalLog) Put(rec logging.Record) {
	if rec.Event.Op == oplog.OpRefusal {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all = append(r.all, rec.Event.Err)
	}
}

func (r *refusalLog) Flush(context.Context) error { return nil }
func (r *refusalLog) Close(context.Context) error { return nil }
func (r *refusalLog) Dropped() uint64             { return 0 }

// newest is the last refusal that the log was told.
func (r *refusalLog) newest(t *testing.T) *core.OutOfBudgetError {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		t.Fatal("the log was told of no refusal")
	}
	short, _ := errors.AsType[*core.OutOfBudgetError](r.all[len(r.all)-1])
	return short
}

// A small job has room, and is refused for the large one that came first. The error says so in its
// fields, to the caller and to the log.
func TestARefusalSaysWhatStoodBeforeTheJob(t *testing.T) {
	for _, guard := range []fencepost.GuardMode{"off", "sample", "hunt"} {
		t.Run(string(guard), func(t *testing.T) {
			log := &refusalLog{}
			rt := e2e.Open(t, fencepost.Config{Budget: 64 << 10, Guard: guard, LogSinks: []logging.Sink{log}})
			claim, err := rt.Reserve(t.Context(), 16<<10, "other")
			e2e.Succeed(t, "reserving", err)
			large := make(chan error, 1)
			go func() {
				large <- rt.Do(context.Background(), "large", nothing, fencepost.Reserve(60<<10, time.Hour))
			}()
			for rt.Waiting() == 0 {
				time.Sleep(100 * time.Microsecond)
			}
			err = rt.Do(t.Context(), "small", nothing, fencepost.Reserve(8<<10, 5*time.Millisecond))
			short, ok := errors.AsType[*core.OutOfBudgetError](err)
			if !ok {
				t.Fatalf("got %v", err)
			}
			if w := short.Wait; w.Ahead != 1 || w.AheadBytes != 60<<10 || w.First != "large" || w.For < 5*time.Millisecond ||
				w.Learning || short.Remaining != 48<<10 {
				t.Errorf("behind another: %+v", short)
			}
			if told := log.newest(t); told == nil || told.Wait != short.Wait {
				t.Errorf("the log was told %v, the caller %v", told, short)
			}
			ending, cancel := context.WithCancel(t.Context())
			go func() {
				for rt.Waiting() < 2 {
					time.Sleep(100 * time.Microsecond)
				}
				cancel()
			}()
			err = rt.Do(ending, "small", nothing, fencepost.Reserve(8<<10, time.Hour))
			waited, ok := errors.AsType[*core.WaitError](err)
			if !ok || !errors.Is(err, context.Canceled) || waited.Wait.Ahead != 1 || waited.Wait.First != "large" ||
				waited.Requested != 8<<10 || waited.Tag != "small" || waited.Wait.For == 0 {
				t.Errorf("its context ended: %v", err)
			}
			saysWhoHolds(t, waited, 64<<10, 48<<10, core.Holder{Tag: "other", State: core.Claimed, Bytes: 16 << 10, Blocks: 1})
			e2e.Succeed(t, "giving the claim back", rt.ReleaseClaim(t.Context(), claim.ID))
			e2e.Succeed(t, "the large job", <-large)

			claim, err = rt.Reserve(t.Context(), 16<<10, "other")
			e2e.Succeed(t, "reserving", err)
			err = rt.Do(t.Context(), "first", nothing, fencepost.Reserve(60<<10, 5*time.Millisecond))
			short, ok = errors.AsType[*core.OutOfBudgetError](err)
			if !ok || short.Wait.Ahead != 0 || short.Wait.For < 5*time.Millisecond {
				t.Errorf("the first in line: %v", err)
			}
			if told := log.newest(t); told == nil || told.Wait != short.Wait {
				t.Errorf("the log was told %v, the caller %v", told, short)
			}
			e2e.Succeed(t, "giving the claim back", rt.ReleaseClaim(t.Context(), claim.ID))
			nothingIsHeld(t, rt)
		})
	}
}

// Each wait that a context ends says how the budget stood: of bytes or of a guess, and of whatever
// the memory is held as.
func TestAWaitThatItsContextEndsSaysWhoHoldsTheMemory(t *testing.T) {
	const limit = 64 << 10
	for name, hold := range map[string]func(*fencepost.Runtime) (core.Holder, func() error){
		"a job": func(rt *fencepost.Runtime) (core.Holder, func() error) {
			inside, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				done <- rt.Do(context.Background(), "holder", func(*fencepost.Job) error {
					close(inside)
					<-goOn
					return nil
				}, fencepost.Reserve(60<<10, 0))
			}()
			<-inside
			return core.Holder{Tag: "holder", State: core.Claimed, Bytes: 60 << 10, Blocks: 1},
				func() error { close(goOn); return <-done }
		},
		"a block": func(rt *fencepost.Runtime) (core.Holder, func() error) {
			block := e2e.Allocate(t, rt, 60<<10, core.DefaultStream, "holder")
			return core.Holder{Tag: "holder", State: core.Live, Bytes: block.Bytes, Blocks: 1},
				func() error { _, err := rt.Deallocate(t.Context(), block.ID); return err }
		},
	} {
		t.Run(name, func(t *testing.T) {
			rt := e2e.Open(t, fencepost.Config{Budget: limit, Guard: "off"})
			holder, giveBack := hold(rt)
			for what, options := range map[string][]fencepost.JobOption{
				"bytes":           {fencepost.Reserve(8<<10, time.Hour)},
				"a guess":         {fencepost.Admit()},
				"all, as a guess": {fencepost.Admit(), fencepost.Reserve(limit, time.Hour)},
			} {
				if what != "bytes" && holder.State == core.Live {
					continue // nothing will come back: a guess takes what there is
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				err := rt.Do(ctx, "late", nothing, options...)
				cancel()
				waited, ok := errors.AsType[*core.WaitError](err)
				if !ok || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", what, err)
					continue
				}
				saysWhoHolds(t, waited, limit, limit-holder.Bytes, holder)
			}
			e2e.Succeed(t, "giving back", giveBack())
			nothingIsHeld(t, rt)
		})
	}
}

// saysWhoHolds checks what a wait that ended says of the budget.
func saysWhoHolds(t *testing.T, err *core.WaitError, limit, remaining uint64, holder core.Holder) {
	t.Helper()
	if err.Limit != limit || err.Remaining != remaining || !slices.Equal(err.Holders, []core.Holder{holder}) ||
		err.MoreHolders != 0 ||
		!strings.Contains(err.Error(), holder.String()) {
		t.Errorf("got %v: %+v", err, err)
	}
}

// What the guard held would do, and the device has not passed it: the wait is the
// job's, not the guard's.
func TestAReservationKeepsToItsWait(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Resource: fencepost.Async, Budget: 8 << 20, Guard: "hunt", GuardConfig: debugguard.Config{Advanced: debugguard.Advanced{Patience: time.Hour, Hunt: debugguard.HuntConfig{Canaries: -1}}}})
	s := e2e.Lease(t, rt, "stalled")
	release, err := e2e.Simulated(rt).Hold(s.Handle())
	e2e.Succeed(t, "holding the stream", err)
	e2e.Free(t, rt, e2e.Allocate(t, rt, 6<<20, s.ID(), "old"))
	for _, wait := range []time.Duration{0, 5 * time.Millisecond} {
		if err := rt.Do(t.Context(), "job", nothing, fencepost.Reserve(4<<20, wait)); !errors.Is(err, core.ErrOutOfBudget) {
			t.Errorf("a wait of %v: %v", wait, err)
		}
	}
	release()
	e2e.Succeed(t, "when the device gets on", rt.Do(t.Context(), "job", nothing, fencepost.Reserve(4<<20, time.Hour)))
	e2e.Succeed(t, "release", s.Release())
	nothingIsHeld(t, rt)
}

// The wait ends with the memory, not with its limit.
func TestAJobWaitsForMemoryUntilItIsReleased(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Budget: 4096, Guard: "off"})
	claim, err := rt.Reserve(t.Context(), 2048, "other")
	e2e.Succeed(t, "reserving", err)
	block := e2e.Allocate(t, rt, 2048, core.DefaultStream, "other")
	e2e.Free(t, rt, block)
	done := make(chan error, 1)
	go func() {
		done <- rt.Do(context.Background(), "job", nothing, fencepost.Reserve(4096, time.Hour))
	}()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(5 * time.Millisecond):
	}
	if leased := rt.Streams().Stats().Leased; leased != 0 {
		t.Errorf("it holds %d streams while it waits for memory", leased)
	}
	e2e.Succeed(t, "giving the claim back", rt.ReleaseClaim(t.Context(), claim.ID))
	e2e.Succeed(t, "the job", <-done)
	if n := rt.Stats().Refusals; n != 0 {
		t.Errorf("%d refusals were counted for a job that only waited", n)
	}
	nothingIsHeld(t, rt)
}

func TestAJobStopsWaitingForMemoryWhenNothingCanCome(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{Budget: 4096, Guard: "off"})
	_, err := rt.Reserve(t.Context(), 4096, "other")
	e2e.Succeed(t, "reserving", err)
	ctx, cancel := context.WithCancel(t.Context())
	for end, c := range map[string]struct {
		end  func()
		want error
	}{
		"cancelled": {cancel, context.Canceled},
	} {
		time.AfterFunc(5*time.Millisecond, c.end)
		expect.Error(t, rt.Do(ctx, "job", nothing, fencepost.Reserve(4096, time.Hour)), c.want, end)
	}
	time.AfterFunc(5*time.Millisecond, func() {
		rt.Core().ReportSticky("test", &core.DriverError{Op: "test", Code: driver.IllegalAddress, Sticky: true})
	})
	expect.Error(t, rt.Do(t.Context(), "job", nothing, fencepost.Reserve(4096, time.Hour)), core.ErrSticky, "on a lost device")
}

// Red zones come from the rest of the budget, and where that is used up there are
// none.
func TestTheSumOfWhatAJobAllocatesIsEnoughToReserve(t *testing.T) {
	for guard, without := range map[string]uint64{"off": 0, "ledger": 0, "sample:1": 3, "hunt": 3, "hunt:bisect": 3} {
		t.Run(guard, func(t *testing.T) {
			rt := e2e.Open(t, fencepost.Config{Budget: 4096, Guard: fencepost.GuardMode(guard)})
			e2e.Succeed(t, "the job", rt.Do(t.Context(), "job", func(j *fencepost.Job) error {
				for _, n := range []int{1000, 0, 1, 3095} {
					if _, err := fencepost.Upload(j, make([]byte, n)); err != nil {
						return err
					}
				}
				if st := rt.Stats(); st.Claimed != 0 || st.Charged != 4096 {
					t.Errorf("%d bytes are left of the reservation, and %d charged", st.Claimed, st.Charged)
				}
				return nil
			}, fencepost.Reserve(4096, 0)))
			if n := rt.Guard().GuardStats().Unguarded; n != without {
				t.Errorf("%d blocks went without red zones", n)
			}
		})
	}
}

// It does at once, before the device has passed the free.
func TestWhatAJobFreesReturnsToItsReservation(t *testing.T) {
	for _, guard := range []string{"off", "ledger", "sample:1", "hunt"} {
		t.Run(guard, func(t *testing.T) {
			rt := e2e.Open(t, fencepost.Config{Budget: 4096, Guard: fencepost.GuardMode(guard)})
			e2e.Succeed(t, "the job", rt.Do(t.Context(), "job", func(j *fencepost.Job) error {
				release, err := e2e.Simulated(rt).Hold(j.Stream().Handle())
				e2e.Succeed(t, "holding the stream", err)
				defer release()
				for range 3 {
					s, err := fencepost.Alloc[byte](j, 4096)
					if err != nil {
						return err
					}
					if err := s.Free(t.Context()); err != nil {
						return err
					}
				}
				return nil
			}, fencepost.Reserve(4096, 0)))
		})
	}
}

// Small jobs that come later do not pass a large one that waits, unless so many may.
func TestReservationsAreServedInOrder(t *testing.T) {
	for _, passes := range []int{0, 2} {
		rt := e2e.Open(t, fencepost.Config{Budget: 4096, Guard: "off", ReservePasses: passes})
		held := must.Get(rt.Reserve(t.Context(), 2048, "held"))(t)
		var mu sync.Mutex
		var order []string
		var jobs sync.WaitGroup
		wait := func(name string, bytes uint64, i int) {
			jobs.Go(func() {
				e2e.Succeed(t, name, rt.Do(context.Background(), name, func(*fencepost.Job) error {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, name)
					return nil
				}, fencepost.Reserve(bytes, time.Minute)))
			})
			for rt.Waiting()+len(orderOf(&mu, &order)) < i {
				time.Sleep(time.Millisecond)
			}
		}
		wait("large", 4096, 1)
		for i := range 4 {
			wait("small", 1024, i+2)
		}
		for len(orderOf(&mu, &order)) < passes { // they have room, and the large one none
			time.Sleep(time.Millisecond)
		}
		must.Do(t, rt.ReleaseClaim(t.Context(), held.ID))
		jobs.Wait()
		if at := slices.Index(order, "large"); at != passes {
			t.Errorf("%d may pass: %v", passes, order)
		}
		nothingIsHeld(t, rt)
	}
}

func orderOf(mu *sync.Mutex, order *[]string) []string {
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(*order)
}

// One that gives up leaves its turn to the next, and takes nothing itself while others wait.
func TestAWaitThatEndsLosesNobodysTurn(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Budget: 4096, Guard: "off"})
	held := must.Get(rt.Reserve(t.Context(), 2048, "held"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	first, last := make(chan error), make(chan error)
	go func() { first <- rt.Do(ctx, "first", nothing, fencepost.Reserve(4096, time.Minute)) }()
	for rt.Waiting() < 1 {
		time.Sleep(time.Millisecond)
	}
	err := rt.Do(t.Context(), "hurried", nothing, fencepost.Reserve(1024, time.Millisecond))
	if _, ok := errors.AsType[*core.OutOfBudgetError](err); !ok || rt.Stats().Refusals != 1 {
		t.Errorf("behind one that waits: %v, %d refusals", err, rt.Stats().Refusals)
	}
	go func() { last <- rt.Do(t.Context(), "last", nothing, fencepost.Reserve(2048, time.Minute)) }()
	for rt.Waiting() < 2 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	expect.Error(t, <-first, context.Canceled)
	must.Do(t, <-last, rt.ReleaseClaim(t.Context(), held.ID))
	nothingIsHeld(t, rt)
}
