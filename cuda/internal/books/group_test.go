package books

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
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
	group.Go(func() { g.enter(all[0], 100) })
	time.Sleep(5 * time.Millisecond)
	group.Go(func() {
		all[1].Retire(large, &Entry{})
		g.enter(all[3], 1000)
	})
	time.Sleep(5 * time.Millisecond)
	all[2].mu.Unlock()
	group.Wait()
	if st := peaks(g); st.PeakRequested != 1100 || st.PeakBytes != 1100 {
		t.Errorf("the peak is %d of at most 1100 bytes that ever were live", st.PeakRequested)
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

// tire uses up the recalls that may wait for streams at work.
func (g *Group) tire() {
	g.recalling.Lock()
	defer g.recalling.Unlock()
	g.waits = recallsPerTurn
	g.look()
}

// Once many recalls have waited for a stream at work, new highs wait for none until the stretch ends.
func TestTheRecallsThatWaitAreBounded(t *testing.T) {
	g, all := newGroup(3)
	live := int64(0)
	enter := func(blocks int) { // with the third stream at work
		all[2].Lock()
		var group sync.WaitGroup
		bytes := live/32 + 100 // more than a level rises by without a look
		group.Go(func() {
			for range blocks {
				g.enter(all[0], uint64(bytes))
			}
		})
		if g.waits < recallsPerTurn {
			for g.recalling.TryLock() { // until there is a look
				g.recalling.Unlock()
			}
			time.Sleep(time.Millisecond)
			all[2].Unlock()
			group.Wait()
		} else {
			group.Wait()
			all[2].Unlock()
		}
		if live += int64(blocks) * bytes; g.Recent(Live) != live { // nothing was freed, so there is no slack
			t.Errorf("%d are live and the peak is %d", live, g.Recent(Live))
		}
	}
	for g.waits < recallsPerTurn {
		enter(1)
	}
	enter(1000)
	late := &Books{}
	g.Add(late, new(path.Lane), nil)
	all[2].Lock()
	g.enter(late, 100)
	all[2].Unlock()
	if ended := g.Turn(); ended[Live] != (Stretch{live + 100, live + 100}) {
		t.Errorf("the stretch ended with %+v, want %d", ended[Live], live+100)
	}
	if all[0].keep != allSlack || late.keep != allSlack || g.waits != 0 {
		t.Errorf("in the next stretch the streams keep %d and %d after %d recalls that waited", all[0].keep, late.keep, g.waits)
	}
}

// The first blocks of many streams, and blocks that go from stream to stream, cost each stream no
// more looks than those of few.
func TestLooksArePaidForByBytes(t *testing.T) {
	each := func(streams int) (first, moved float64) {
		g, all := newGroup(streams)
		blocks := make([]*core.Block, streams)
		for i, b := range all {
			blocks[i] = g.enter(b, 4096)
		}
		first = float64(g.looked) / float64(streams)
		for i := range streams - 1 { // what one stream frees the next one has
			all[i].leave(blocks[i])
			blocks[i+1] = g.enter(all[i+1], 4096)
		}
		if live := int64(streams) * 4096; !near(peaks(g).PeakBytes, live, live/peakError) {
			t.Errorf("%d streams: a peak of %d, and at most %d were live", streams, peaks(g).PeakBytes, live)
		}
		return first, float64(g.looked)/float64(streams) - first
	}
	first, moved := each(250)
	// it grows with the logarithm of the streams; 16 would be linear
	if most, mostMoved := each(4000); most > 4*first || mostMoved > 4*moved {
		t.Errorf("250 streams look at %.0f and %.0f books each, 4000 at %.0f and %.0f", first, moved, most, mostMoved)
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
		g.Turn()
		if !early {
			g.Raise(short)
		}
		if got := g.Recent(Live); got != 100 {
			t.Errorf("claimed before the turn: %t; 100 bytes are live and the stretch's peak is %d", early, got)
		}
	}
}

// Whatever is allocated, freed, given back and taken back on whichever stream, the peaks are those
// that a single book would have.
func TestThePeaksAreThoseOfOneBook(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(300) {
		playBooks(t, seed+i, 1+int(i%4))
		if i%20 == 0 {
			playBooks(t, seed+i, 2*fewStreams)
		}
	}
}

// ownedBlock is a block, and the books that it is in.
type ownedBlock struct {
	c  *core.Block
	in int
	e  *Entry
}

// near is whether a peak is the truth, or above it by as much as may be.
func near(got uint64, want, more int64) bool { return int64(got) >= want && int64(got) <= want+more }

func playBooks(t *testing.T, seed uint64, streams int) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 0))
	g, all := newGroup(streams)
	var blocks []ownedBlock
	var live, peak, recent, outstanding, peakOutstanding int64
	var more, moreRecent int64 // by how much the peaks may be above the truth
	turns := 20 + rnd.IntN(400)
	lives, highest := make([]int64, len(all)), make([]int64, len(all)) // of each of the books, in the stretch
	change := func(in int, by int64) {
		live += by
		lives[in] += by
		highest[in] = max(highest[in], lives[in])
	}
	above := func(peak, more int64) int64 { return max(g.unsure(peak), more) }
	for range 400 {
		switch at := rnd.IntN(max(len(blocks), 1)); {
		case rnd.IntN(turns) == 0:
			ended := g.Turn()
			if got := ended[Live]; got.Now != live || !near(uint64(got.Peak), recent, above(recent, moreRecent)) {
				t.Fatalf("seed %d: a stretch ended with %+v, want %d and %d, or as much as %d more", seed, got, recent, live, moreRecent)
			}
			recent, moreRecent = live, 0
			copy(highest, lives)
		case rnd.IntN(turns/2+1) == 0:
			g.tire()
			moreRecent = max(leastSlack, g.Recent(Requested)/peakError)
			more = max(more, moreRecent)
		case len(blocks) == 0 || rnd.IntN(2) == 0:
			in := rnd.IntN(len(all))
			c := g.enter(all[in], 1+rnd.Uint64N(1<<rnd.IntN(28)))
			blocks = append(blocks, ownedBlock{c: c, in: in, e: &Entry{}})
			change(in, int64(c.Bytes))
			outstanding += int64(c.Bytes)
		case rnd.IntN(8) == 0 && !blocks[at].e.Withheld:
			all[blocks[at].in].Withhold(blocks[at].c, blocks[at].e)
			change(blocks[at].in, -int64(blocks[at].c.Bytes))
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
				change(b.in, -int64(b.c.Bytes))
			}
		}
		peak, recent, peakOutstanding = max(peak, live), max(recent, live), max(peakOutstanding, outstanding)
		sum := int64(0)
		for _, high := range highest {
			sum += high
		}
		if got := g.Recent(Live); got > above(max(recent, sum), 0)+max(recent, sum) {
			t.Fatalf("seed %d: a peak of the stretch of %d, and those of the books are %d together", seed, got, sum)
		}
		if st := peaks(g); !near(st.PeakBytes, peak, above(peak, more)) ||
			!near(st.PeakOutstanding, max(peak, peakOutstanding), above(max(peak, peakOutstanding), more)) ||
			!near(uint64(g.Recent(Live)), recent, above(recent, moreRecent)) {
			t.Fatalf("seed %d: peaks %d live, %d outstanding, %d of the stretch; want %d, %d, %d, or as much as %d and %d more",
				seed, st.PeakBytes, st.PeakOutstanding, g.Recent(Live), peak, peakOutstanding, recent, more, moreRecent)
		}
	}
}
