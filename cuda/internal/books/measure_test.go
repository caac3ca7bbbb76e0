package books

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// shelf is books with their blocks.
type shelf struct {
	Books
	blocks map[*core.Block]*Entry
}

func addShelf(g *Group) *shelf {
	s := &shelf{blocks: map[*core.Block]*Entry{}}
	g.Add(&s.Books, new(path.Lane), func(show func(*core.Block, *Entry)) {
		for c, e := range s.blocks {
			show(c, e)
		}
	})
	return s
}

func (s *shelf) enter(c *core.Block, withheld bool) {
	s.Lock()
	s.blocks[c] = &Entry{Withheld: withheld}
	short := s.Enter(c, s.blocks[c])
	s.Unlock()
	s.group.Raise(short)
}

// leave takes a block out in one of the two ways.
func (s *shelf) leave(c *core.Block, atOnce bool) {
	if atOnce {
		s.Lock()
		s.Free(c, s.blocks[c])
		delete(s.blocks, c)
		s.Unlock()
		return
	}
	s.Retire(c, s.blocks[c])
	s.Lock()
	s.Leave(c, 0)
	delete(s.blocks, c)
	s.Unlock()
}

// sizes are the live bytes of all, under "", and of each tag.
type holdings map[core.Tag][2]uint64

// naive is the oracle of one stretch: the most of each that it was ever shown.
type naive struct {
	real *Measured
	most holdings
}

func (n *naive) see(live holdings) {
	for tag, now := range live {
		n.most[tag] = [2]uint64{max(n.most[tag][0], now[0]), max(n.most[tag][1], now[1])}
	}
}

func (n *naive) differs(got core.Peak) error {
	seen, area := holdings{"": {got.Requested, got.Bytes}}, 0.0
	for tag, p := range got.Tags {
		seen[tag] = [2]uint64{p.Requested, p.Bytes}
		area += p.ByteSeconds
	}
	want := maps.Clone(n.most)
	maps.DeleteFunc(want, func(tag core.Tag, most [2]uint64) bool { return most[1] == 0 && tag != "" })
	if !maps.Equal(seen, want) {
		return fmt.Errorf("peaks %v, want %v", seen, want)
	}
	if math.Abs(area-got.ByteSeconds) > 1e-9*max(area, 1e-9) {
		return fmt.Errorf("%g byte-seconds of all tags, %g of all", area, got.ByteSeconds)
	}
	return nil
}

func TestMeasuredPeaksAreExact(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(200) {
		playStretches(t, seed+i)
	}
}

// playStretches lets blocks of several tags come and go in books that come too, while stretches
// are begun and ended.
func playStretches(t *testing.T, seed uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 0))
	g := &Group{}
	all := []*shelf{addShelf(g)}
	var open []*naive
	for range 300 {
		s := all[rnd.IntN(len(all))]
		blocks := slices.SortedFunc(maps.Keys(s.blocks), func(a, b *core.Block) int { return int(a.ID.Generation) - int(b.ID.Generation) })
		var c *core.Block
		if len(blocks) > 0 {
			c = blocks[rnd.IntN(len(blocks))]
		}
		switch do := rnd.IntN(20); {
		case do == 0 && len(all) < 5:
			all = append(all, addShelf(g))
		case do == 1:
			open = append(open, &naive{g.Measure(), holdings{}})
		case do == 2 && len(open) > 0:
			at := rnd.IntN(len(open))
			n := open[at]
			open = slices.Delete(open, at, at+1)
			if err := n.differs(n.real.End()); err != nil {
				t.Fatalf("seed %d: a stretch ended with %v", seed, err)
			}
			if err := n.differs(n.real.End()); err != nil {
				t.Fatalf("seed %d: a stretch that is over has %v", seed, err)
			}
		case do == 3 && c != nil:
			s.Withhold(c, s.blocks[c])
		case do == 4 && c != nil:
			s.Retire(c, s.blocks[c])
			see(open, all)
			g.Raise(s.Revive(c, s.blocks[c]))
		case do < 12 || c == nil:
			bytes := 1 + rnd.Uint64N(64)
			s.enter(&core.Block{ID: core.BlockID{Generation: core.NextGeneration()}, Bytes: bytes, Requested: 1 + rnd.Uint64N(bytes), Tag: core.Tag([]string{"a", "b", "c"}[rnd.IntN(3)])}, rnd.IntN(8) == 0)
		default:
			s.leave(c, rnd.IntN(2) == 0)
		}
		see(open, all)
		for _, n := range open {
			if err := n.differs(n.real.Peak()); err != nil {
				t.Fatalf("seed %d: a stretch has %v", seed, err)
			}
		}
	}
	for _, n := range open {
		n.real.End()
	}
	if g.meter != nil || all[0].meter != nil {
		t.Fatalf("seed %d: no stretch is open, and changes are followed", seed)
	}
}

// see shows the oracles what is live.
func see(open []*naive, all []*shelf) {
	live := holdings{"": {}}
	for _, s := range all {
		for c, e := range s.blocks {
			if e.live {
				for _, tag := range []core.Tag{"", c.Tag} {
					live[tag] = [2]uint64{live[tag][0] + c.Requested, live[tag][1] + c.Bytes}
				}
			}
		}
	}
	for _, n := range open {
		n.see(live)
	}
}

// Each stream holds 100 bytes throughout and up to 50 more; stretches come and go meanwhile.
func TestStretchesBesideEachOtherAreExact(t *testing.T) {
	g := &Group{}
	const streams, rounds, held, more = 4, 300, 100, 50
	var work sync.WaitGroup
	all := make([]*shelf, streams)
	for i := range all {
		all[i] = addShelf(g)
		all[i].enter(&core.Block{Bytes: held, Requested: held, Tag: "held"}, false)
	}
	whole := g.Measure()
	for _, s := range all {
		work.Go(func() {
			for i := range rounds {
				c := &core.Block{Bytes: more, Requested: more, Tag: "more"}
				s.enter(c, false)
				s.leave(c, i%2 == 0)
			}
		})
		work.Go(func() {
			for range rounds {
				m := g.Measure()
				m.Peak()
				p := m.End()
				if p.Bytes < streams*held || p.Bytes > streams*(held+more) || p.Tags["held"].Bytes != streams*held || p.Tags["more"].Bytes > streams*more {
					t.Errorf("a stretch had %+v", p)
					return
				}
			}
		})
	}
	work.Wait()
	if p := whole.End(); p.Bytes < streams*held+more || p.Tags["held"].Bytes != streams*held {
		t.Errorf("the whole had %+v", p)
	}
	quiet := g.Measure()
	if p := quiet.End(); p.Bytes != streams*held || p.Requested != streams*held || len(p.Tags) != 1 {
		t.Errorf("at rest a stretch has %+v", p)
	}
}

// A stretch that begins and ends over and over, so that the meter comes and goes under the streams.
func TestAMeterThatComesAndGoesLosesNothing(t *testing.T) {
	g := &Group{}
	s := addShelf(g)
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			c := &core.Block{Bytes: 1, Requested: 1}
			s.enter(c, false)
			s.leave(c, true)
		}
	})
	for i := range 500 {
		m := g.Measure()
		if i%16 == 0 {
			addShelf(g)
		}
		if p := m.End(); p.Bytes > 1 {
			t.Errorf("of one block at a time the peak is %d", p.Bytes)
		}
	}
	close(stop)
	work.Wait()
}

// A free that the device refuses makes the block live again: it was allocated once.
func TestABlockThatIsLiveAgainWasAllocatedOnce(t *testing.T) {
	s := addShelf(new(Group))
	c, e := &core.Block{Requested: 100, Bytes: 128}, &Entry{Account: core.NewAccount()}
	s.Lock()
	short := s.Enter(c, e)
	s.Unlock()
	s.group.Raise(short)
	s.Retire(c, e)
	s.group.Raise(s.Revive(c, e))
	if got := e.Account.Read(); got.Allocated != (core.Amount{Bytes: 128, Requested: 100, Blocks: 1}) || got.Bytes != 128 {
		t.Errorf("%+v", got)
	}
	s.Retire(c, e)
}
