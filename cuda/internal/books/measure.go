package books

import (
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/level"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// Measured is a stretch of time whose peaks are wanted, of a whole backend and of each tag. See
// [Group.Measure].
type Measured struct {
	group  *Group
	meter  *meter
	number int
	began  monotime.Instant
	// all and tags are the areas when it began; a tag that nothing had yet is not among them.
	all  level.Areas
	tags map[core.Tag]level.Areas
	// over: end is the peak. The meter's lock guards both.
	over bool
	end  core.Peak
}

// meter follows what is live while stretches are measured. All of them share it: the first
// makes it, the last lets it go, and each change costs the same for any number of them.
type meter struct {
	// open is how many stretches are not over; the group's opening guards it.
	open int

	mu      sync.Mutex
	numbers int // of stretches so far
	all     measure
	tags    map[core.Tag]*measure
}

// measure is what is live of one tag, or of all.
type measure struct {
	level            level.Level
	requested, bytes level.Highs
}

// begin notes the beginning of a stretch, and returns the areas until then.
func (m *measure) begin(number int, at monotime.Instant) level.Areas {
	m.level.Change(at, level.Amount{}) // later changes are later
	m.requested.Begin(number, m.level.Now.Requested)
	m.bytes.Begin(number, m.level.Now.Bytes)
	return m.level.AreasAt(at)
}

func (m *measure) change(at monotime.Instant, by level.Amount) {
	m.level.Change(at, by)
	m.requested.Raise(m.level.Now.Requested)
	m.bytes.Raise(m.level.Now.Bytes)
}

// peak is that of a stretch that had these areas when it began; m.mu of the meter must be held.
func (m *measure) peak(s *Measured, before level.Areas, now monotime.Instant) core.Peak {
	p := core.Peak{Requested: clamp(m.requested.Since(s.number)), Bytes: clamp(m.bytes.Since(s.number)), Elapsed: now.Since(s.began)}
	p.RequestedSeconds, p.ByteSeconds = m.level.AreasAt(now).Minus(before).Seconds()
	return p
}

// change notes that a block is live (1) or no more (-1).
func (m *meter) change(c *core.Block, sign int64) {
	by := level.Amount{Requested: sign * int64(c.Requested), Bytes: sign * int64(c.Bytes)}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := monotime.Now()
	m.all.change(now, by)
	tag := m.tags[c.Tag]
	if tag == nil {
		tag = &measure{}
		tag.begin(m.numbers, now) // for all stretches so far
		m.tags[c.Tag] = tag
	}
	tag.change(now, by)
}

// Measure begins a stretch, which must be ended. If no other is open it walks over the blocks
// of all streams, with one stream's books locked at a time: from then on that stream's changes
// are followed. So when all are, what is followed is what is live, and the stretch begins.
func (g *Group) Measure() *Measured {
	g.opening.Lock()
	defer g.opening.Unlock()
	m := g.meter
	if m == nil {
		m = &meter{tags: map[core.Tag]*measure{}}
		for _, b := range g.setMeter(m) {
			b.follow(m)
		}
	}
	m.open++
	return m.begin(g)
}

// setMeter is for books that are added from now on; it returns those that were before.
func (g *Group) setMeter(m *meter) []*Books {
	g.recalling.Lock()
	defer g.recalling.Unlock()
	g.meter = m
	return g.all
}

// follow tells a meter what is live in the books, and from now on what changes.
func (b *Books) follow(m *meter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.meter = m
	if m == nil {
		return
	}
	b.each(func(c *core.Block, e *Entry) {
		if e.live {
			m.change(c, 1)
		}
	})
}

func (m *meter) begin(g *Group) *Measured {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.numbers++
	s := &Measured{group: g, meter: m, number: m.numbers, began: monotime.Now(), tags: make(map[core.Tag]level.Areas, len(m.tags))}
	s.all = m.all.begin(s.number, s.began)
	for tag, of := range m.tags {
		s.tags[tag] = of.begin(s.number, s.began)
	}
	return s
}

// Peak is that of the stretch so far.
func (s *Measured) Peak() core.Peak {
	s.meter.mu.Lock()
	defer s.meter.mu.Unlock()
	return s.peak()
}

// peak is Peak with the meter's lock held.
func (s *Measured) peak() core.Peak {
	if s.over {
		return s.end
	}
	m, now := s.meter, monotime.Now()
	p := m.all.peak(s, s.all, now)
	p.Tags = map[core.Tag]core.Peak{}
	for tag, of := range m.tags {
		if most := of.peak(s, s.tags[tag], now); most.Bytes > 0 {
			p.Tags[tag] = most
		}
	}
	return p
}

// End ends the stretch and returns its peak, again if it has ended.
func (s *Measured) End() core.Peak {
	s.group.opening.Lock()
	defer s.group.opening.Unlock()
	if s.finish() {
		if s.meter.open--; s.meter.open == 0 {
			for _, b := range s.group.setMeter(nil) {
				b.follow(nil)
			}
		}
	}
	return s.end
}

// finish reports whether the stretch was not over.
func (s *Measured) finish() bool {
	s.meter.mu.Lock()
	defer s.meter.mu.Unlock()
	s.end = s.peak()
	ended := !s.over
	s.over, s.tags = true, nil
	return ended
}
