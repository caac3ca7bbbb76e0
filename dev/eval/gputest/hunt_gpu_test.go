package gputest

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
)

// stray is a launch that declares nothing and writes words at an address.
func (b *bench) stray(on *cuda.Lease, name string, ptr uint64, n int) {
	b.Helper()
	must(b, b.LaunchNamed(ctx, name, on.ID(), nil, func(context.Context) error {
		b.planted(on, ptr, n)
		return nil
	}))
}

// among requires that a launch is one of at most three suspects.
func (b *bench) among(f core.Finding, name string) {
	b.Helper()
	found := false
	for _, u := range f.Suspects {
		found = found || u.Launch == name
	}
	if !found || len(f.Suspects) > 3 {
		b.Errorf("suspects %v; want %s among three", f.Suspects, name)
	}
}

// Large enough to be summed up in pieces, whose sums the host adds.
func TestASealFindsTheLaunchThatBrokeIt(t *testing.T) {
	for _, guard := range []string{"sample:1", "hunt:bisect"} {
		t.Run(guard, func(t *testing.T) {
			b := newBench(t, fencepost.Config{Guard: fencepost.GuardMode(guard)})
			s := b.lease("test")
			n := scaled(64<<20, 4<<20) / wordBytes
			victim := b.alloc(s, n, "victim")
			must(t, b.doWrite(s, victim, 1))
			must(t, b.Guard().Seal(ctx, victim.Use(core.Read).Block))
			sum, err := b.counter(s)
			must(t, err)
			for range 5 {
				must(t, b.doCheck(s, victim, 1, sum))
				must(t, b.Guard().CheckSeals(ctx))
			}
			must(t, b.Streams().Synchronize(ctx, s.ID()))
			must(t, b.ReapPending(ctx))
			if found := b.Findings().Recent(); len(found) > 0 {
				t.Fatalf("before the plant: %v", found)
			}
			at := n/2 + 17
			b.stray(s, "stray", victim.Ptr()+uint64(at)*wordBytes, 1)
			must(t, b.doCheck(s, victim, 1, sum))
			must(t, sum.Free(ctx))
			must(t, b.Guard().Unseal(ctx, victim.Use(core.Read).Block))
			must(t, b.doWrite(s, victim, 2))
			must(t, victim.Free(ctx))
			f := b.single(names.FindingSealedWrite, "victim")
			b.among(f, "stray")
			if part := int64(n * wordBytes / 64); f.Offset > int64(at*wordBytes) || f.Offset+part <= int64(at*wordBytes) {
				t.Errorf("the part at %d; the write was at %d", f.Offset, at*wordBytes)
			}
		})
	}
}

func TestBisectingFindsTheLaunchThatWroteFreedMemory(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "hunt:bisect"})
	s := b.lease("test")
	victim, used := b.alloc(s, 1000, "victim"), b.alloc(s, 1000, "used")
	must(t, b.doWrite(s, victim, 1))
	ptr := victim.Ptr()
	must(t, victim.Free(ctx))
	for i := range uint64(40) {
		if i == 23 {
			b.stray(s, "stray", ptr+100*wordBytes, 3)
		}
		must(t, b.doWrite(s, used, i))
	}
	must(t, used.Free(ctx))
	f := b.single(names.FindingUseAfterFreeWrite, "victim")
	b.within(f, 100*wordBytes, 103*wordBytes)
	b.among(f, "stray")
}

// canary is the address of one that lies where a block was, 0 if there is
// none.
func (b *bench) canary(blocks map[uint64]bool) (ptr uint64) {
	b.Guard().Inspect().Blocks(func(info core.BlockInfo) bool {
		if info.Block.State == core.Quarantined && strings.HasPrefix(string(info.Block.Tag), "gpumem.guard") && blocks[info.Block.ID.Ptr] {
			ptr = info.Block.ID.Ptr
		}
		return ptr == 0
	})
	return ptr
}

func TestACanaryFindsAWriteToMemoryThatNobodyHas(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "hunt", GuardConfig: debugguard.Config{QuarantineBytes: 64 << 10}})
	s := b.lease("test")
	blocks := map[uint64]bool{}
	for i := 0; b.canary(blocks) == 0; i++ {
		if i == 2000 {
			t.Fatal("no canary was posted where a block was")
		}
		w := b.alloc(s, 200, "gone")
		blocks[w.Ptr()-debugguard.DefaultRedZone] = true
		must(t, b.doWrite(s, w, 1))
		must(t, w.Free(ctx))
	}
	b.stray(s, "stray", b.canary(blocks)+16, 2)
	f := b.single(names.FindingStrayWrite, "gpumem.guard.sentinel")
	b.within(f, 16, 32)
	if !strings.Contains(f.Text, `tagged "gone"`) {
		t.Errorf("it does not say whose the address was: %s", f.Text)
	}
}

// Every tier and option, changed every few milliseconds under load: nothing is
// found, no word is wrong, and the books agree at the end.
func TestTiersAreSwitchedUnderLoadWithoutAFalseFinding(t *testing.T) {
	const goroutines = 4
	b := newBench(t, fencepost.Config{Streams: goroutines + 1, Guard: "off", GuardConfig: debugguard.Config{QuarantineBytes: 1 << 20}})
	home := b.lease("home")
	table := b.alloc(home, 1<<10, "table")
	must(t, b.doWrite(home, table, 11))
	var stop atomic.Bool
	switched := make(chan error)
	go func() {
		settings := []string{"off", "ledger", "sample:1", "hunt:bisect", "hunt:delay", "sample", "hunt", "hunt:bisect+delay"}
		var err error
		for i := 0; err == nil && !stop.Load(); i++ {
			var setting debugguard.Setting
			if setting, err = debugguard.ParseMode(settings[i*5%len(settings)]); err == nil {
				err = b.Guard().Apply(ctx, setting)
			}
			time.Sleep(3 * time.Millisecond)
		}
		switched <- err
	}()
	end := time.Now().Add(time.Duration(scaled(5000, 1000)) * time.Millisecond)
	var rounds, wrong atomic.Uint64
	err := together(goroutines, func(i int) error {
		h := &hammer{bench: b, rng: rand.New(rand.NewPCG(uint64(i), 1)), table: table}
		err := h.run(i, end)
		rounds.Add(h.rounds)
		wrong.Add(h.wrong)
		return err
	})
	stop.Store(true)
	must(t, <-switched)
	must(t, err)
	must(t, table.Free(ctx))
	must(t, b.Drain(ctx))
	s, g := b.Stats(), b.Guard().GuardStats()
	t.Logf("%d rounds; the guard: %+v", rounds.Load(), g)
	if wrong.Load() != 0 || rounds.Load() == 0 || s.OpenIntents != 0 || s.Allocations != s.Deallocations || s.Failures != 0 || s.Outstanding() != (core.Amount{}) {
		t.Errorf("%d words are wrong; the books: %+v", wrong.Load(), s)
	}
	if g.Findings != 0 || g.Guarded == 0 || g.Verified == 0 || g.Delays == 0 || g.Quarantine != (core.Amount{}) || g.Known != 0 {
		t.Errorf("the guard: %+v", g)
	}
}
