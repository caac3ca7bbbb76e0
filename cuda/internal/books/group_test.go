package books

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// newGroup is a group of n books.
func newGroup(n int) (*Group, []*Books) {
	g, all := &Group{}, make([]*Books, n)
	for i := range all {
		all[i] = &Books{}
		g.Add(all[i], new(path.Lane), nil)
	}
	return g, all
}

func (g *Group) enter(b *Books, bytes uint64) *core.Block {
	c := &core.Block{Bytes: bytes, Requested: bytes}
	b.Lock()
	short := b.Enter(c, &Entry{})
	b.Unlock()
	g.Raise(short)
	return c
}

func (b *Books) leave(c *core.Block) {
	b.Retire(c, &Entry{})
	b.Lock()
	b.Leave(c, time.Second)
	b.Unlock()
}

func peaks(g *Group) (st core.Stats) {
	g.AddPeaksTo(&st)
	return st
}

// Bytes that are freed on one stream and allocated on another while the slack
// is recalled must not be counted twice.
func TestThePeakIsExactWhileSlackIsRecalled(t *testing.T) {
	g, all := newGroup(4)
	large := g.enter(all[1], 1000)
	all[2].mu.Lock() // a recall comes as far as here
	var group sync.WaitGroup
	group.Go(func() { g.enter(all[0], 1) })
	time.Sleep(5 * time.Millisecond)
	group.Go(func() {
		all[1].Retire(large, &Entry{})
		g.enter(all[3], 1000)
	})
	time.Sleep(5 * time.Millisecond)
	all[2].mu.Unlock()
	group.Wait()
	if st := peaks(g); st.PeakRequested != 1001 || st.PeakBytes != 1001 {
		t.Errorf("the peak is %d of at most 1001 bytes that ever were live", st.PeakRequested)
	}
}

// A free between the looks at two sizes must not make callers hold more than it takes.
func TestNoPeakIsBelowThatOfASmallerSize(t *testing.T) {
	g, all := newGroup(2)
	large := g.enter(all[0], 1000)
	c := &core.Block{Bytes: 100, Requested: 100}
	all[1].Lock()
	short := all[1].Enter(c, &Entry{})
	all[1].Unlock()
	g.Raise(Shortage{Requested: short[Requested]})
	all[0].leave(large)
	short[Requested] = 0
	g.Raise(short)
	if st := peaks(g); st.PeakRequested != 1100 || st.PeakBytes != 1100 || st.PeakOutstanding != 1100 {
		t.Errorf("peaks %d requested, %d live and %d outstanding bytes; 1100 requested bytes were live at once", st.PeakRequested, st.PeakBytes, st.PeakOutstanding)
	}
}

// A free that fails takes back what somebody else has been given meanwhile.
func TestARevivedBlockMayMakeANewPeak(t *testing.T) {
	g, all := newGroup(1)
	c := g.enter(all[0], 100)
	all[0].Retire(c, &Entry{})
	g.enter(all[0], 100)
	g.Raise(all[0].Revive(c, &Entry{}))
	if st := peaks(g); st.PeakRequested != 200 || st.PeakBytes != 200 {
		t.Errorf("200 bytes are live and the peak is %d", st.PeakRequested)
	}
}

// More new highs in a stretch than are looked for one by one cost no more looks; a new
// peak since the beginning is looked at all the same.
func TestTheLooksOfAStretchAreBounded(t *testing.T) {
	g, all := newGroup(3)
	all[0].leave(g.enter(all[0], 10_000))
	g.Turn(Live)
	looks := func() int { return g.highWater[Live].looks }
	for range looksPerTurn + 500 {
		g.enter(all[0], 1)
	}
	if got := g.Recent(Live); got != looksPerTurn+500 || looks() != looksPerTurn {
		t.Errorf("%d live after %d looks", got, looks())
	}
	g.enter(all[1], 20_000)
	if st, want := peaks(g), uint64(looksPerTurn+500+20_000); st.PeakBytes != want || g.Recent(Live) != int64(want) {
		t.Errorf("the peak is %d, in the stretch %d; want %d", st.PeakBytes, g.Recent(Live), want)
	}
	if ended := g.Turn(Live); ended.Peak != ended.Now || looks() != 0 {
		t.Errorf("the stretch ended with %+v, %d looks at the beginning of the next", ended, looks())
	}
}

// What is allocated, retired and released adds up, and more going than came is told.
func TestTheBooksAddUp(t *testing.T) {
	g, all := newGroup(2)
	kept, held := g.enter(all[0], 10), g.enter(all[0], 20)
	all[1].leave(g.enter(all[1], 40))
	all[0].Retire(held, &Entry{})
	var st core.Stats
	for _, b := range all {
		b.AddTo(&st)
	}
	if st.Live != (core.Amount{Bytes: 10, Requested: 10, Blocks: 1}) || st.Pending != (core.Amount{Bytes: 20, Requested: 20, Blocks: 1}) ||
		st.Allocations != 3 || st.Deallocations != 2 || st.Underflows != 0 {
		t.Errorf("%+v", st)
	}
	if blocks, bytes := all[0].Entered(); blocks != 2 || bytes != 30 {
		t.Errorf("%d blocks of %d bytes entered", blocks, bytes)
	}
	all[0].Withhold(kept, &Entry{}) // its owner has given it back, and others have its share of the peak
	g.enter(all[0], 10)
	if st := peaks(g); st.PeakBytes != 70 {
		t.Errorf("the peak is %d", st.PeakBytes)
	}
	all[1].leave(held) // in the wrong books
	st = core.Stats{}
	all[1].AddTo(&st)
	if st.Underflows == 0 {
		t.Error("more was retired than allocated, and nobody says so")
	}
}

// A stretch that ends while an allocation is between its entry and its claim must not hide it from
// the next one.
func TestWhatIsClaimedWhileAStretchEndsCountsToTheNext(t *testing.T) {
	for _, early := range []bool{true, false} {
		g, all := newGroup(2)
		all[0].leave(g.enter(all[0], 1000)) // the former level
		c := &core.Block{Bytes: 100, Requested: 100}
		all[1].Lock()
		short := all[1].Enter(c, &Entry{})
		all[1].Unlock()
		if early {
			g.Raise(short)
		}
		g.Turn(Live)
		if !early {
			g.Raise(short)
		}
		if got := g.Recent(Live); got != 100 {
			t.Errorf("claimed before the turn: %t; 100 bytes are live and the stretch's peak is %d", early, got)
		}
	}
}

// While a stretch ends nothing is claimed by its level.
func TestNothingIsClaimedWhileTheLevelFalls(t *testing.T) {
	g, all := newGroup(2)
	all[0].leave(g.enter(all[0], 1000))
	g.enter(all[0], 100)
	all[1].Lock() // so the turn comes as far as here
	var group sync.WaitGroup
	group.Go(func() { g.Turn(Live) })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := deadline.Poll(ctx, func() (bool, error) { return g.highWater[Live].look.Load() == noLevel, nil }); err != nil {
		t.Errorf("the level of the former stretch stays while its end is counted: %v", err)
	}
	if all[1].cover(Live, 1) {
		t.Error("one byte was covered by the level of the former stretch")
	}
	all[1].Unlock()
	group.Wait()
}

// Whatever is allocated, freed, given back and taken back on whichever stream, the peaks are those
// that a single book would have.
func TestThePeaksAreThoseOfOneBook(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(300) {
		playBooks(t, seed+i)
	}
}

// ownedBlock is a block, and the books that it is in.
type ownedBlock struct {
	c  *core.Block
	in int
	e  *Entry
}

func playBooks(t *testing.T, seed uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 0))
	g, all := newGroup(1 + rnd.IntN(4))
	var blocks []ownedBlock
	var live, peak, recent, outstanding, peakOutstanding int64
	for range 200 {
		switch at := rnd.IntN(max(len(blocks), 1)); {
		case rnd.IntN(40) == 0:
			if ended := g.Turn(Live); ended != (Stretch{recent, live}) {
				t.Fatalf("seed %d: a stretch ended with %+v, want %d and %d", seed, ended, recent, live)
			}
			recent = live
		case len(blocks) == 0 || rnd.IntN(2) == 0:
			in := rnd.IntN(len(all))
			c := g.enter(all[in], 1+rnd.Uint64N(64))
			blocks = append(blocks, ownedBlock{c: c, in: in, e: &Entry{}})
			live += int64(c.Bytes)
			outstanding += int64(c.Bytes)
		case rnd.IntN(8) == 0 && !blocks[at].e.Withheld:
			all[blocks[at].in].Withhold(blocks[at].c, blocks[at].e)
			live -= int64(blocks[at].c.Bytes)
		default:
			b := blocks[at]
			blocks = slices.Delete(blocks, at, at+1)
			all[b.in].Retire(b.c, b.e)
			if rnd.IntN(8) == 0 {
				g.Raise(all[b.in].Revive(b.c, b.e))
				all[b.in].Retire(b.c, b.e)
			}
			all[b.in].Lock()
			all[b.in].Leave(b.c, time.Second)
			all[b.in].Unlock()
			outstanding -= int64(b.c.Bytes)
			if !b.e.Withheld {
				live -= int64(b.c.Bytes)
			}
		}
		peak, recent, peakOutstanding = max(peak, live), max(recent, live), max(peakOutstanding, outstanding)
		if st := peaks(g); int64(st.PeakBytes) != peak || int64(st.PeakOutstanding) != max(peak, peakOutstanding) || g.Recent(Live) != recent {
			t.Fatalf("seed %d: peaks %d live, %d outstanding, %d of the stretch; want %d, %d, %d",
				seed, st.PeakBytes, st.PeakOutstanding, g.Recent(Live), peak, peakOutstanding, recent)
		}
	}
}
