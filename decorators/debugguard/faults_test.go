package debugguard_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// program is a correct use of the guard that reaches every call it makes. It
// gives up on the first error of an allocation or use, and retries frees.
func program(b *bench) {
	var live []core.Block
	for i := range 12 {
		block, err := b.guard.Allocate(ctx, core.Request{Bytes: 200, Stream: core.StreamID(i % 2)})
		if err != nil {
			continue
		}
		live = append(live, block)
		if i == 4 && b.guard.Seal(ctx, block.ID) == nil {
			_ = b.guard.CheckSeals(ctx)
			_ = b.guard.Unseal(ctx, block.ID)
		}
		ticket, err := b.guard.PrepareUse(ctx, core.UseRequest{Stream: 1, Uses: []core.Use{{Block: block.ID, Access: core.Write}}})
		if err != nil {
			continue
		}
		if i == 3 {
			b.retry(func() error { _, err := b.guard.Deallocate(ctx, block.ID); return err })
			live = live[:len(live)-1]
		}
		if i == 7 {
			_ = b.guard.AbortUse(ctx, ticket)
			continue
		}
		_ = b.guard.FinishUse(ctx, ticket)
	}
	for _, block := range live {
		b.retry(func() error { _, err := b.guard.Deallocate(ctx, block.ID); return err })
	}
	_ = b.guard.ReapPending(ctx)
	b.retry(func() error { return b.guard.Drain(ctx) })
}

func (b *bench) retry(f func() error) {
	b.Helper()
	var err error
	for range 3 {
		if err = f(); err == nil {
			return
		}
	}
	b.Errorf("still failing: %v", err)
}

// TestEveryCallFailsOnce fails the k-th call of each method below the guard,
// for every k until the program makes no such call any more.
func TestEveryCallFailsOnce(t *testing.T) {
	small := func(c *debugguard.Config) {
		c.QuarantineBytes = 1600
		c.Advanced.Hunt = debugguard.HuntConfig{Bisect: true, Delay: time.Microsecond, QuarantineBytes: 4500}
	}
	inject := map[string]func(b *bench, op string, errs []error){
		"fake":   func(b *bench, op string, errs []error) { b.fake.FailNext(op, errs...) },
		"device": func(b *bench, op string, errs []error) { b.mem.failNext(op, errs...) },
	}
	ops := map[string][]string{
		"fake":   {"Allocate", "Deallocate", "PrepareUse", "FinishUse", "AbortUse", "ReapPending", "Drain"},
		"device": {"Fill", "Verify", "Checksum", "Delay", "Poll", "Wait", "Mismatches", "Sums"},
	}
	for where, names := range ops {
		for _, op := range names {
			for k := 0; ; k++ {
				b := newBench(t, debugguard.Hunt, small)
				errs := make([]error, k+1)
				errs[k] = fmt.Errorf("call %d of %s: %w", k, op, errDevice)
				inject[where](b, op, errs)
				program(b)
				if found := b.sink.taken(); len(found) > 0 {
					t.Fatalf("%s failing at %d: false findings %v", op, k, found)
				}
				b.empty()
				if t.Failed() {
					t.Fatalf("%s failing at call %d", op, k)
				}
				if n := b.called(op); n <= k {
					if n == 0 {
						t.Errorf("%s is never called", op)
					}
					break
				}
			}
		}
	}
}

// called is how often the program called a method below the guard.
func (b *bench) called(op string) int {
	n := b.mem.calls[op]
	for _, call := range b.fake.Calls() {
		if strings.HasPrefix(call, op+" ") || call == op {
			n++
		}
	}
	return n
}

func TestFailedFreeLeavesTheBlockLive(t *testing.T) {
	for _, mode := range []debugguard.Mode{debugguard.Ledger, debugguard.Hunt} {
		t.Run(mode.String(), func(t *testing.T) {
			b := newBench(t, mode)
			block := b.alloc(64)
			b.fake.FailNext("PrepareUse", errDevice) // the guard's own: the plain free is next
			b.fake.FailNext("Deallocate", errDevice)
			if mode == debugguard.Ledger {
				_, _ = b.fake.PrepareUse(ctx, core.UseRequest{}) // takes the scripted error
			}
			if _, err := b.guard.Deallocate(ctx, block.ID); !errors.Is(err, core.ErrDriver) {
				t.Fatalf("free: %v", err)
			}
			if s := b.guard.State(block.ID); s != core.Live {
				t.Errorf("after a failed free the block is %v", s)
			}
			b.launch("still usable", 1, func() {}, block)
			b.free(block)
			b.empty()
			b.want()
		})
	}
}

func TestRefusedGuardLaunchIsCounted(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	b.fake.FailNext("PrepareUse", errTest)
	unarmed := b.alloc(64)
	b.mem.poke(unarmed.ID.Ptr+64, 1)
	if s := b.free(unarmed).State; s != core.Retired {
		t.Errorf("the unarmed block is %v", s)
	}
	if g := b.guard.GuardStats(); g.Unchecked != 2 {
		t.Errorf("%d unchecked, want arming and comparison", g.Unchecked)
	}
	refused := b.alloc(64)
	b.mem.failNext("Fill", core.NotEnqueued(errTest))
	if s := b.free(refused).State; s != core.Retired {
		t.Errorf("the block without poison is %v", s)
	}
	if s := b.fake.Stats(); s.OpenIntents != 0 || s.Aborts != 1 {
		t.Errorf("nothing was enqueued, yet %+v", s)
	}
	// An error that does not say so may be that of work under way, which must
	// not stay unfenced.
	unsure := b.alloc(64)
	b.mem.poke(unsure.ID.Ptr+64, 1)
	b.mem.failNext("Fill", errTest)
	if s := b.free(unsure).State; s != core.Quarantined {
		t.Errorf("the block that may hold poison is %v", s)
	}
	if s := b.fake.Stats(); s.OpenIntents != 0 || s.Aborts != 1 {
		t.Errorf("something may have been enqueued, yet %+v", s)
	}
	if s := b.guard.Stats(); s.Aborts != 0 {
		t.Errorf("the caller aborted nothing: %+v", s)
	}
	b.empty()
	b.want(names.FindingOutOfBoundsWrite) // its red zones are compared all the same
}

// A block that is too large for quarantine is compared at its free, or never.
func TestRefusedComparisonAtTheFreeIsCounted(t *testing.T) {
	for name, failure := range map[string]error{"nothing enqueued": core.NotEnqueued(errTest), "something may be": errTest, "none": nil} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, debugguard.Hunt, func(c *debugguard.Config) { c.QuarantineBytes = 1024 })
			large := b.alloc(4096)
			b.mem.poke(large.ID.Ptr+4096, 1)
			if failure != nil {
				b.mem.failNext("Verify", failure)
			}
			if s := b.free(large).State; s != core.Retired {
				t.Errorf("the block is %v", s)
			}
			b.drain()
			found := b.sink.taken()
			if g, damaged := b.guard.GuardStats(), len(found); g.Unchecked+uint64(damaged) != 1 || (damaged == 1) != (failure == nil) {
				t.Errorf("%d unchecked, found %v", g.Unchecked, found)
			}
			b.empty()
		})
	}
}

func TestFailedEvictionKeepsTheBlock(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	block := b.alloc(64)
	b.free(block)
	b.fake.FailNext("Deallocate", errDevice)
	expect.Error(t, b.guard.Flush(ctx), core.ErrDriver, "flush")
	g := b.guard.GuardStats()
	if b.guard.State(block.ID) != core.Quarantined || g.Quarantine.Blocks != 1 || g.Retried != 1 {
		t.Errorf("guard %+v", g)
	}
	b.empty()
	b.want()
}

func TestFailedDeferredFreeIsTriedAgain(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	block := b.alloc(64)
	ticket := b.prepare("open", 1, block)
	b.free(block)
	b.fake.FailNext("PrepareUse", errDevice)
	b.fake.FailNext("Deallocate", errDevice)
	b.finish(ticket)
	if g := b.guard.GuardStats(); b.guard.State(block.ID) != core.Quarantined || g.BlockedFrees.Blocks != 0 || g.Quarantine.Blocks != 1 {
		t.Errorf("guard %+v", g)
	}
	b.empty()
	b.want()
}

func TestFailingSynchroniseIsCounted(t *testing.T) {
	for k := range 6 {
		b := newBench(t, debugguard.Off)
		b.fake.ReleaseAtFree()
		b.guard = b.over(untracked{b.fake}, debugguard.Hunt)
		errs := make([]error, k+1)
		errs[k] = errDevice
		b.mem.failNext("Synchronize", errs...)
		b.free(b.alloc(64))
		b.empty()
		b.want()
		if g := b.guard.GuardStats(); g.Unchecked == 0 {
			t.Errorf("synchronise %d failed unnoticed: %+v", k, g)
		}
	}
}

func TestAnswerOfAFreeGetsLost(t *testing.T) {
	for _, mode := range []debugguard.Mode{debugguard.Ledger, debugguard.Hunt} {
		b := newBench(t, debugguard.Off)
		faults := coretest.NewFaults(b.fake, coretest.Fault{Method: "Deallocate", Call: 1, Err: errDevice, After: true})
		b.guard = b.over(faults, mode)
		block := b.alloc(64)
		_, _ = b.guard.Deallocate(ctx, block.ID)
		b.retry(func() error { return b.guard.Drain(ctx) })
		b.empty()
		b.want()
	}
}

func TestConfigIsChecked(t *testing.T) {
	b := newBench(t, debugguard.Off)
	for name, try := range map[string]func() error{
		"nil upstream": func() error { _, err := debugguard.New(nil, debugguard.Config{}); return err },
		"mode":         func() error { _, err := debugguard.New(b.fake, debugguard.Config{Mode: 9}); return err },
		"red zone": func() error {
			_, err := debugguard.New(b.fake, debugguard.Config{Advanced: debugguard.Advanced{RedZone: 1 << 40}})
			return err
		},
		"suspects": func() error {
			_, err := debugguard.New(b.fake, debugguard.Config{Advanced: debugguard.Advanced{Suspects: -1}})
			return err
		},
		"set mode": func() error { return b.guard.SetMode(ctx, 17) },
	} {
		expect.Error(t, try(), core.ErrInvalidRequest, name)
	}
	b.mode(debugguard.Hunt)
	for _, bytes := range []uint64{0, ^uint64(0), ^uint64(0) - 300} {
		b.fake.FailNext("Allocate", errMemory)
		if _, err := b.guard.Allocate(ctx, core.Request{Bytes: bytes}); err == nil {
			t.Errorf("%d bytes were allocated", bytes)
		}
	}
}
