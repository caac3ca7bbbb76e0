package gputest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
)

// agree demands that the runtime's books and the driver's say the same. What
// is pending is in neither: the pool's used bytes fall when a free is queued.
func (b *bench) agree(when string) {
	b.Helper()
	pool, err := b.PoolStats()
	must(b, err)
	s := b.Stats()
	if ours := s.Live.Bytes + s.Quarantined.Bytes; ours != pool.Used {
		b.Errorf("%s: %d bytes live and in quarantine, %d by the driver's pool: a drift of %d", when, ours, pool.Used, int64(ours)-int64(pool.Used))
	}
	drift, err := b.Drift()
	for end := time.Now().Add(endBound); err == nil && !drift.Known && time.Now().Before(end); drift, err = b.Drift() {
		time.Sleep(time.Millisecond) // the pool grows in the background
	}
	if drift.Bytes != 0 || !drift.Known || err != nil {
		b.Errorf("%s: a drift of %d bytes (%v, %v)", when, drift.Bytes, drift.Known, err)
	}
}

// The books are compared while the stream is stalled, so that what they say is
// not what the device happens to have done.
func TestTheBooksAgreeWithTheDriver(t *testing.T) {
	gpu(t)
	for _, guard := range []string{"off", "ledger", "sample:65536", "hunt"} {
		t.Run(guard, func(t *testing.T) {
			b := newBench(t, fencepost.Config{Guard: fencepost.GuardMode(guard)})
			x, y := b.lease("x"), b.lease("y")
			rng := rand.New(rand.NewPCG(1, 2))
			b.agree("at the start")
			var live []*words
			for range scaled(200, 50) {
				n := 1 + rng.IntN(1<<14)
				w := b.alloc(x, n, "books")
				must(t, b.doWrite(y, w, 1))
				live = append(live, w)
			}
			b.agree("with everything live")
			half := len(live) / 2
			b.give(live[:half])
			b.agree("when half was freed")
			must(t, b.Drain(ctx))
			b.agree("when half was drained")
			for range half {
				live = append(live, b.alloc(y, 1+rng.IntN(1<<14), "books"))
			}
			b.agree("when freed memory was used again")
			b.give(live[half:])
			must(t, b.Drain(ctx))
			b.agree("when all was drained")
			b.empty()
		})
	}
}

func (b *bench) give(blocks []*words) {
	b.Helper()
	for _, w := range blocks {
		must(b, w.Free(ctx))
	}
}

// What a stalled stream has still to do keeps a freed block pending, in the
// runtime's books and not in the pool's.
func TestPendingBytesLeaveTheBooksWhenTheDeviceHasPassed(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "off"})
	s := b.lease("s")
	w := b.alloc(s, 1<<20, "pending")
	release, err := b.hw.hold(s.Handle())
	must(t, err)
	t.Cleanup(release)
	must(t, b.doWrite(s, w, 1))
	size := w.Bytes()
	must(t, w.Free(ctx))
	must(t, b.ReapPending(ctx))
	want := core.Amount{Bytes: size, Requested: size, Blocks: 1}
	if b.Core().Resource().Features().Has(core.OrderedRelease) {
		want = core.Amount{}
	}
	if p := b.Stats().Pending; p != want {
		t.Errorf("pending on a stalled stream: %+v, want %+v", p, want)
	}
	b.agree("with a free pending")
	release()
	must(t, b.Drain(ctx))
	b.agree("when it was drained")
	if s := b.Stats(); s.Outstanding() != (core.Amount{}) {
		t.Errorf("after the drain %+v is outstanding", s.Outstanding())
	}
}

// Trimming gives back to the device what nobody has, and nothing else.
func TestTrimGivesBackWhatNobodyHas(t *testing.T) {
	b := newBench(t, fencepost.Config{Guard: "off"})
	s := b.lease("s")
	kept, freed := b.alloc(s, 1<<20, "kept"), b.alloc(s, scaled(128<<20, 8<<20), "freed")
	must(t, b.doWrite(s, kept, 5))
	size := freed.Bytes()
	must(t, freed.Free(ctx))
	must(t, b.Drain(ctx))
	before, err := b.PoolStats()
	must(t, err)
	must(t, b.TrimPool(ctx, 0))
	after, err := b.PoolStats()
	must(t, err)
	if after.Reserved >= before.Reserved || after.Reserved < after.Used || after.Used != kept.Bytes() || after.ReservedHigh < size {
		t.Errorf("the pool held %d bytes, then %d, at most %d; %d are used", before.Reserved, after.Reserved, after.ReservedHigh, after.Used)
	}
	for i, word := range b.read(s, kept) {
		if word != 5 {
			t.Fatalf("word %d of the block that was kept is %d", i, word)
		}
	}
	must(t, kept.Free(ctx))
}
