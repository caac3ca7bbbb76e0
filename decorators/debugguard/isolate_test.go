package debugguard_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

const granule = 64 << 10

// unmappingBench hunts by unmapping over a fake that isolates blocks.
func unmappingBench(t *testing.T, change ...func(*debugguard.Config)) *bench {
	t.Helper()
	return newBenchOver(t, true, append(change, func(c *debugguard.Config) { c.Advanced.Hunt.Unmap, c.Advanced.Hunt.Canaries = true, -1 })...)
}

// newBenchOver is newBench over a fake that isolates blocks, or does not.
func newBenchOver(t *testing.T, isolates bool, change ...func(*debugguard.Config)) *bench {
	t.Helper()
	b := newBench(t, debugguard.Off)
	if isolates {
		b.fake.Isolate(granule)
	}
	b.guard = b.over(b.fake, debugguard.Hunt, change...)
	b.fake.Calls()
	return b
}

func (b *bench) isolatedCalls() (n int) {
	for _, call := range b.fake.Calls() {
		if strings.HasPrefix(call, "Allocate") && strings.HasSuffix(call, " isolated") {
			n++
		}
	}
	return n
}

func TestAHuntByUnmappingAsksForWholeGranules(t *testing.T) {
	b := unmappingBench(t)
	block := b.alloc(100)
	calls := b.fake.Calls()
	if want := fmt.Sprintf("Allocate %d test isolated", granule); len(calls) == 0 || calls[0] != want {
		t.Errorf("asked %q, want %q first", calls, want)
	}
	if block.Bytes != 100 || block.ID.Ptr%core.DefaultAlign != 0 {
		t.Errorf("the caller got %+v", block)
	}
	big := b.alloc(granule)
	if calls = b.fake.Calls(); calls[0] != fmt.Sprintf("Allocate %d test isolated", 2*granule) {
		t.Errorf("asked %q", calls)
	}
	if g := b.guard.GuardStats(); g.Isolated != 2 || g.Guarded != 2 || g.NotIsolated != 0 {
		t.Errorf("the statistics: %+v", g)
	}
	b.free(block)
	b.free(big)
	b.empty()
	b.want()
}

func TestAnIsolatedBlockIsComparedAndNotQuarantined(t *testing.T) {
	b := unmappingBench(t)
	block := b.alloc(100)
	fills := b.mem.calls["Fill"]
	freed := b.free(block)
	if freed.State != core.Retired || freed.ID != block.ID || freed.Bytes != 100 {
		t.Errorf("freed is %+v", freed)
	}
	if q := b.guard.GuardStats().Quarantine; q != (core.Amount{}) {
		t.Errorf("quarantine holds %+v", q)
	}
	if n := b.mem.calls["Fill"]; n != fills {
		t.Errorf("%d fills for the free", n-fills)
	}
	b.drain()
	if g := b.guard.GuardStats(); g.Verified != 1 || g.Unchecked != 0 {
		t.Errorf("the statistics: %+v", g)
	}
	expect.ErrorOf(b.guard.Deallocate(ctx, block.ID))(t, core.ErrUseAfterFree, "a second free")
	b.want(names.FindingDoubleFree)
	b.empty()
}

// The right red zone reaches to the end of the granule.
func TestTheRedZonesOfAnIsolatedBlockFillItsGranule(t *testing.T) {
	for offset, kind := range map[int]core.FindingKind{
		-1: names.FindingUnderflow, 100: names.FindingOutOfBoundsWrite, granule - 257: names.FindingOutOfBoundsWrite,
	} {
		b := unmappingBench(t)
		block := b.alloc(100)
		b.mem.poke(block.ID.Ptr+uint64(offset), 1)
		b.free(block)
		b.drain()
		if f := b.want(kind)[0]; f.Offset != int64(offset) || f.Victim.ID != block.ID {
			t.Errorf("%d: offset %d of %v", offset, f.Offset, f.Victim.ID)
		}
		b.empty()
	}
}

func TestAHuntThatCannotUnmapQuarantinesAndCounts(t *testing.T) {
	b := newBenchOver(t, false, func(c *debugguard.Config) { c.Advanced.Hunt.Unmap = true })
	b.free(b.alloc(100))
	if n := b.isolatedCalls(); n != 0 {
		t.Errorf("%d isolated blocks were asked for", n)
	}
	if g := b.guard.GuardStats(); g.NotIsolated != 1 || g.Isolated != 0 || g.Quarantine.Blocks != 1 {
		t.Errorf("the statistics: %+v", g)
	}
	b.empty()
	b.want()
}

func TestABlockThatCannotBeIsolatedIsGuardedWithout(t *testing.T) {
	for name, err := range map[string]error{"memory": outOfMemory(), "budget": &core.OutOfBudgetError{}, "support": refuse.Unsupported("Allocate", "fake", "none")} {
		b := unmappingBench(t)
		b.fake.FailNext("Allocate", err)
		if name != "support" {
			b.fake.FailNext("Allocate", err) // which comes after a reap
		}
		block := b.alloc(100)
		s, g := b.guard.Stats(), b.guard.GuardStats()
		if g.NotIsolated != 1 || g.Isolated != 0 || g.Guarded != 1 || g.Unguarded != 0 || s.Refusals != 0 || s.Failures != 0 {
			t.Errorf("%s: %+v, %+v", name, g, s)
		}
		b.free(block)
		if q := b.guard.GuardStats().Quarantine; q.Blocks != 1 {
			t.Errorf("%s: quarantine holds %+v", name, q)
		}
		b.empty()
		b.want()
	}
	b := unmappingBench(t)
	b.fake.FailNext("Allocate", errDevice)
	expect.ErrorOf(b.guard.Allocate(ctx, core.Request{Bytes: 8}))(t, errDevice, "another failure")
	b.empty()
}

func outOfMemory() error { return &core.DriverError{Op: "test", Code: 2, OutOfMemory: true} }

// What the caller wants isolated is so in every mode, or refused.
func TestTheCallersOwnWishIsKept(t *testing.T) {
	for _, mode := range []debugguard.Mode{debugguard.Off, debugguard.Ledger, debugguard.Sample, debugguard.Hunt} {
		for _, isolates := range []bool{true, false} {
			b := newBenchOver(t, isolates, func(c *debugguard.Config) { c.SampleBytes = 1 })
			b.mode(mode)
			b.fake.Calls()
			block, err := b.guard.Allocate(ctx, core.Request{Bytes: 100, Isolated: true})
			if n := b.isolatedCalls(); n != 1 || isolates == (err != nil) {
				t.Errorf("%v: asked %d times, %v", mode, n, err)
			}
			if !isolates {
				expect.Error(t, err, errors.ErrUnsupported, mode)
				continue
			}
			b.free(block)
			if q := b.guard.GuardStats().Quarantine; q != (core.Amount{}) {
				t.Errorf("%v: quarantine holds %+v", mode, q)
			}
			b.empty()
			b.want()
		}
	}
}

func TestUnmappingFollowsTheSetting(t *testing.T) {
	b := newBenchOver(t, true)
	for setting, want := range map[string]int{"hunt": 0, "hunt:unmap": 1, "hunt:bisect": 0, "sample:1": 0, "ledger": 0} {
		s, err := debugguard.ParseMode(setting)
		if err == nil {
			err = b.guard.Apply(ctx, s)
		}
		must.Do(t, err)
		b.fake.Calls()
		block := b.alloc(100)
		if n := b.isolatedCalls(); n != want {
			t.Errorf("%s: %d isolated blocks were asked for, want %d", setting, n, want)
		}
		b.free(block)
	}
	b.empty()
	b.want()
}

// A free that fails leaves the block its owner's: nothing of it was overwritten.
func TestAnIsolatedBlockWhoseFreeFailsIsLiveAgain(t *testing.T) {
	b := unmappingBench(t)
	block := b.alloc(100)
	fills := b.mem.calls["Fill"]
	b.fake.FailNext("Deallocate", errDevice)
	if _, err := b.guard.Deallocate(ctx, block.ID); !errors.Is(err, errDevice) {
		t.Fatalf("got %v", err)
	}
	if s := b.guard.State(block.ID); s != core.Live || b.mem.calls["Fill"] != fills {
		t.Errorf("the block is %v, and was filled %d times", s, b.mem.calls["Fill"]-fills)
	}
	busy := b.alloc(100)
	ticket := b.prepare("busy", 1, busy)
	b.free(busy)
	b.fake.FailNext("Deallocate", errDevice)
	b.finish(ticket) // whose deferred free fails, and is tried again
	b.free(block)
	b.empty()
	b.want()
}

func TestEveryCallOfAHuntByUnmappingFailsOnce(t *testing.T) {
	for _, op := range []string{"Allocate", "Deallocate", "PrepareUse", "FinishUse", "AbortUse", "ReapPending", "Drain", "Fill", "Verify", "Poll", "Wait", "Mismatches"} {
		for k := range 40 {
			if testing.Short() && k%4 != 0 {
				continue
			}
			b := unmappingBench(t)
			errs := make([]error, k+1)
			errs[k] = fmt.Errorf("call %d of %s: %w", k, op, errDevice)
			switch op {
			case "Fill", "Verify", "Poll", "Wait", "Mismatches":
				b.mem.failNext(op, errs...)
			default:
				b.fake.FailNext(op, errs...)
			}
			program(b)
			if found := b.sink.taken(); len(found) > 0 {
				t.Fatalf("%s failing at %d: false findings %v", op, k, found)
			}
			b.empty()
			if t.Failed() {
				t.Fatalf("%s failing at call %d", op, k)
			}
		}
	}
}

// TestUnmappingHammer allocates, uses and frees from many goroutines while the
// option comes and goes; the sums are exact at the end.
func TestUnmappingHammer(t *testing.T) {
	b := unmappingBench(t)
	begin, stop := make(chan struct{}), make(chan struct{})
	var workers, switcher sync.WaitGroup
	const goroutines, rounds = 8, 60
	for g := range goroutines {
		workers.Go(func() {
			<-begin
			for range rounds {
				block, err := b.guard.Allocate(ctx, core.Request{Bytes: 100, Stream: core.StreamID(g % 3)})
				if err != nil {
					t.Error(err)
					return
				}
				ticket, err := b.guard.PrepareUse(ctx, core.UseRequest{Stream: core.StreamID(g % 3), Uses: []core.Use{{Block: block.ID, Access: core.Write}}})
				if err == nil {
					_, err = b.guard.Deallocate(ctx, block.ID) // waits for the launch
					err = errors.Join(err, b.guard.FinishUse(ctx, ticket))
				}
				expect.Success(t, err)
			}
		})
	}
	switcher.Go(func() {
		<-begin
		for on := true; ; on = !on {
			select {
			case <-stop:
				return
			default:
				expect.Success(t, b.guard.Apply(ctx, debugguard.Setting{Mode: debugguard.Hunt, Unmap: on}))
				time.Sleep(50 * time.Microsecond) // the workers meet both
			}
		}
	})
	must.Do(t, b.guard.Apply(t.Context(), debugguard.Setting{Mode: debugguard.Hunt, Unmap: true}))
	close(begin)
	workers.Wait()
	close(stop)
	switcher.Wait()
	isolated := uint64(b.isolatedCalls())
	if g := b.guard.GuardStats(); g.Guarded != goroutines*rounds || g.Isolated != isolated || g.NotIsolated != 0 || isolated == 0 {
		t.Errorf("%d isolated blocks were asked for; the statistics: %+v", isolated, g)
	}
	b.empty()
	b.want()
}
