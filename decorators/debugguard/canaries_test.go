package debugguard_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// watchedGaps has a quarantine of 64 blocks of 1024 bytes, and so room for
// canaries of 8 KiB.
func watchedGaps(c *debugguard.Config) { c.Advanced.Hunt.QuarantineBytes = 64 << 10 }

// churned frees blocks until some have left quarantine, and returns the
// canaries.
func (b *bench) churned(n int) []core.Block {
	b.Helper()
	for range n {
		b.free(b.alloc(512))
	}
	return b.canaries()
}

func (b *bench) canaries() (all []core.Block) {
	b.guard.Inspect().Blocks(func(info core.BlockInfo) bool {
		if strings.HasPrefix(string(info.Block.Tag), "gpumem.guard.") && info.Block.State < core.Retired {
			b.Errorf("a canary shows as %v", info.Block.State)
		}
		if strings.HasPrefix(string(info.Block.Tag), "gpumem.guard.") && info.Block.State == core.Quarantined {
			all = append(all, info.Block)
		}
		return true
	})
	return all
}

func TestAWriteToAFreedGapIsFoundByItsCanary(t *testing.T) {
	for _, bisect := range []bool{false, true} {
		b := newBench(t, debugguard.Hunt, watchedGaps, func(c *debugguard.Config) { c.Advanced.Hunt.Bisect = bisect })
		used := b.alloc(64)
		all := b.churned(100)
		if len(all) == 0 {
			t.Fatal("no canary was posted")
		}
		b.launch("good", 1, func() {}, used)
		b.launch("bad", 1, func() { b.mem.poke(all[0].ID.Ptr+100, 3) }, used)
		b.launch("later", 1, func() {}, used)
		if bisect {
			b.launch("much later", 1, func() {}, used)
			must.Do(t, b.guard.ReapPending(ctx))
		} else {
			b.free(used)
			b.empty()
		}
		f := b.want(names.FindingStrayWrite)[0]
		if f.Offset != 100 || f.BadBytes != 3 || f.Victim.ID.Ptr != all[0].ID.Ptr || !strings.Contains(f.Text, "the guard's own") {
			t.Errorf("finding %v", f)
		}
		if got := launchesOf(f.Suspects); !slices.Contains(got, "bad") || bisect && len(got) != 1 {
			t.Errorf("suspects %v", got)
		}
		if bisect {
			b.free(used)
			b.empty()
			b.want()
		}
	}
}

func TestCanariesAreBoundedAndTheGuardsOwn(t *testing.T) {
	b := newBench(t, debugguard.Hunt, watchedGaps, func(c *debugguard.Config) { c.Advanced.Hunt.Canaries = 6 })
	heard := 0
	b.guard.Subscribe(listener(func(core.Block) { heard++ }))
	const n = 2000
	for i := range n {
		b.free(b.alloc(512))
		g, s := b.guard.GuardStats(), b.guard.Stats()
		if g.Canaries.Blocks > 6 || g.Canaries.Bytes > 8<<10 || g.Quarantine.Bytes > 64<<10 {
			t.Fatalf("after %d frees: %+v", i+1, g)
		}
		if s.Live != (core.Amount{}) || s.Quarantined != g.Quarantine || s.Allocations != uint64(i+1) || s.Deallocations != uint64(i+1) {
			t.Fatalf("after %d frees: %+v, quarantine %+v", i+1, s, g.Quarantine)
		}
	}
	if len(b.canaries()) == 0 {
		t.Fatal("no canary was posted")
	}
	b.empty()
	b.want()
	if len(b.canaries()) != 0 || b.guard.GuardStats().Canaries != (core.Amount{}) {
		t.Error("canaries were left")
	}
	if heard != n {
		t.Errorf("%d releases were told, want those of the %d blocks of callers", heard, n)
	}
}

func TestCanariesEndWithTheHunt(t *testing.T) {
	for _, m := range []debugguard.Mode{debugguard.Off, debugguard.Ledger, debugguard.Sample} {
		b := newBench(t, debugguard.Hunt, watchedGaps)
		if len(b.churned(100)) == 0 {
			t.Fatal("no canary was posted")
		}
		b.mode(m)
		if g := b.guard.GuardStats(); g.Canaries.Blocks != 0 {
			t.Errorf("%v: %+v", m, g.Canaries)
		}
		b.empty()
		b.want()
	}
}

// A canary whose free fails as the hunt ends is not forgotten.
func TestCanariesThatCouldNotBeFreedAreTriedAgain(t *testing.T) {
	for name, again := range map[string]func(b *bench) error{
		"off":   func(b *bench) error { return b.guard.SetMode(ctx, debugguard.Off) },
		"drain": func(b *bench) error { return b.guard.Drain(ctx) },
		"reap":  func(b *bench) error { return b.guard.ReapPending(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, debugguard.Hunt, watchedGaps)
			n := len(b.churned(100))
			b.fake.FailNext("Deallocate", slices.Repeat([]error{errors.New("not now")}, n)...)
			if err := b.guard.SetMode(ctx, debugguard.Off); err == nil || n == 0 || len(b.canaries()) != n {
				t.Fatalf("of %d canaries %d are left: %v", n, len(b.canaries()), err)
			}
			must.Do(t, again(b))
			if n = len(b.canaries()); n != 0 {
				t.Errorf("%d canaries are left", n)
			}
		})
	}
}

func TestCanariesAreGivenUpFirst(t *testing.T) {
	for name, refusal := range map[string]error{"budget": &core.OutOfBudgetError{Requested: 1}, "device": errMemory} {
		b := newBench(t, debugguard.Hunt, watchedGaps)
		b.churned(100)
		before := b.guard.GuardStats()
		b.fake.FailNext("Allocate", refusal, refusal) // the second comes after a reap
		b.free(b.alloc(512))
		after := b.guard.GuardStats()
		if after.Canaries.Blocks != 0 || after.Evicted != before.Evicted || after.Relieved != 1 || after.GivenUp.Bytes != before.Canaries.Bytes || after.GivenUp.Blocks != before.Canaries.Blocks || before.Canaries.Bytes == 0 {
			t.Errorf("%s: before %+v, after %+v", name, before, after)
		}
		b.fake.FailNext("Allocate", refusal, refusal) // the second comes after a reap
		b.free(b.alloc(512))
		if g := b.guard.GuardStats(); g.Relieved != 2 || g.Evicted == before.Evicted || g.GivenUp.Bytes <= after.GivenUp.Bytes {
			t.Errorf("%s: quarantine did not follow: %+v", name, g)
		}
		b.empty()
		b.want()
	}
}

func TestCanariesGiveWaySilently(t *testing.T) {
	b := newBench(t, debugguard.Hunt, watchedGaps)
	for range 63 {
		b.free(b.alloc(512))
	}
	more := []core.Block{b.alloc(512), b.alloc(512)}
	refusals := make([]error, 40)
	for i := range refusals {
		refusals[i] = errMemory
	}
	b.fake.FailNext("Allocate", refusals...)
	for _, block := range more {
		b.free(block)
	}
	if g, s := b.guard.GuardStats(), b.guard.Stats(); g.Canaries.Blocks != 0 || g.Evicted == 0 || s.Failures != 0 {
		t.Errorf("guard %+v, failures %d", g, s.Failures)
	}
	b.fake.FailNext("Allocate")
	b.want()
}

func TestACanaryThatCannotBeFilledIsNotCompared(t *testing.T) {
	b := newBench(t, debugguard.Hunt, watchedGaps, func(c *debugguard.Config) { c.Advanced.Hunt.Canaries = 1 })
	for range 64 {
		b.free(b.alloc(512))
	}
	last := b.alloc(512)
	b.mem.failNext("Fill", core.NotEnqueued(errDevice)) // the canary, for which the block makes room before its own poison
	b.free(last)
	all := b.canaries()
	if len(all) != 1 {
		t.Fatalf("%d canaries", len(all))
	}
	b.mem.poke(all[0].ID.Ptr, 1)
	b.empty()
	b.want()
	if g := b.guard.GuardStats(); g.Unchecked != 1 {
		t.Errorf("%d unchecked", g.Unchecked)
	}
}
