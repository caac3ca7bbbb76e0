// Package line is a queue of those who wait for room: first come, first served.
package line

import (
	"sync"
	"time"
)

// Line is a queue of goroutines that try in its order. Its methods take a time that does not depend on
// its length, but for [Place.Standing], and are safe for concurrent use.
type Line struct {
	// Passes is how many may pass one that does not fit, each of whom fits.
	Passes int
	// OnWaiters, if not nil, is told when the first comes and when the last has left. It is
	// called with the line locked.
	OnWaiters func(waiting bool)

	mu     sync.Mutex
	order  Order
	places []*Place // by their number
}

// Place is one in the line.
type Place struct {
	line   *Line
	number int
	name   string
	joined time.Time
	turn   chan struct{}
	mayTry bool // though it is not the first
}

// Standing is how a place stands: how long it has waited, how many are ahead of it, for how many
// bytes together, and the name of the first of them.
type Standing struct {
	Waited time.Duration
	Ahead  int
	Bytes  uint64
	First  string
}

// Join takes the last place, for so many bytes. The name is for those behind, and it waits since a
// time. It must be left.
func (l *Line) Join(bytes uint64, name string, since time.Time) *Place {
	p := &Place{line: l, name: name, joined: since, turn: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.order.Len() == 0 && l.OnWaiters != nil {
		l.OnWaiters(true)
	}
	if l.Passes > 0 { // the first may let it pass
		l.wakeFirst()
	}
	if p.number = l.order.Join(bytes); p.number == len(l.places) {
		l.places = append(l.places, nil)
	}
	l.places[p.number] = p
	return p
}

// Len is how many wait.
func (l *Line) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.order.Len()
}

// Wake has the first try again: there may be room. It does not block.
func (l *Line) Wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeFirst()
}

func (l *Line) wakeFirst() {
	if first, ok := l.order.First(); ok {
		l.places[first].wake()
	}
}

func (p *Place) wake() {
	select {
	case p.turn <- struct{}{}:
	default: // it has yet to look at the last one
	}
}

// isFirst needs the lock.
func (p *Place) isFirst() bool {
	first, ok := p.line.order.First()
	return ok && first == p.number
}

// Turn receives when it is worth to look whether the place may try.
func (p *Place) Turn() <-chan struct{} { return p.turn }

// MayTry reports whether it is the place's turn: it is the first, or may pass.
func (p *Place) MayTry() bool {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	may := p.mayTry || p.isFirst()
	p.mayTry = false
	return may
}

// LetPass is for a place that has tried in vain. It has one behind the first try whose bytes there
// is room for, if the place is the first and may be passed once more: one at a time. Who leaves
// wakes the first, so that it asks again.
func (p *Place) LetPass(room uint64) {
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order.Stay(p.number)
	if !p.isFirst() {
		return
	}
	l.order.Passes = l.Passes
	if other, ok := l.order.Pass(room); ok {
		l.places[other].mayTry = true
		l.places[other].wake()
	}
}

// Standing looks at all places ahead, so it takes a time that depends on their number.
func (p *Place) Standing() Standing {
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Standing{Waited: time.Since(p.joined)}
	for at, ok := l.order.First(); ok && at != p.number; at, ok = l.order.Next(at) {
		if s.Ahead++; s.Ahead == 1 {
			s.First = l.places[at].name
		}
		s.Bytes += l.order.Bytes(at)
	}
	return s
}

// Leave gives the place up. If it was the first, the next has its turn.
func (p *Place) Leave() {
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order.Leave(p.number)
	l.places[p.number] = nil
	if l.order.Len() == 0 && l.OnWaiters != nil {
		l.OnWaiters(false)
	}
	l.wakeFirst()
}
