// Package line is a queue of those who wait for room: first come, first served.
package line

import (
	"container/list"
	"sync"
)

// passable is how many places behind the first are looked at for one that may pass it.
const passable = 64

// Line is a queue. Its methods take a time that does not depend on its length, and are safe
// for concurrent use.
type Line struct {
	// Passes is how many may pass one that does not fit, each of whom fits.
	Passes int
	// OnWaiters, if not nil, is told when the first comes and when the last has left. It is
	// called with the line locked.
	OnWaiters func(waiting bool)

	mu     sync.Mutex
	places list.List // of *Place
}

// Place is one in the line.
type Place struct {
	line   *Line
	bytes  uint64
	passed int // by how many
	turn   chan struct{}
	mayTry bool // though it is not the first
	passes bool // it was let pass, and has not tried in vain since
	at     *list.Element
}

// Join takes the last place, for so many bytes. It must be left.
func (l *Line) Join(bytes uint64) *Place {
	p := &Place{line: l, bytes: bytes, turn: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.places.Len() == 0 && l.OnWaiters != nil {
		l.OnWaiters(true)
	}
	if l.Passes > 0 { // the first may let it pass
		l.wakeFirst()
	}
	p.at = l.places.PushBack(p)
	return p
}

// Len is how many wait.
func (l *Line) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.places.Len()
}

// Wake has the first try again: there may be room. It does not block.
func (l *Line) Wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeFirst()
}

func (l *Line) wakeFirst() {
	if first := l.places.Front(); first != nil {
		first.Value.(*Place).wake()
	}
}

func (p *Place) wake() {
	select {
	case p.turn <- struct{}{}:
	default: // it has yet to look at the last one
	}
}

// Turn receives when it is worth to look whether the place may try.
func (p *Place) Turn() <-chan struct{} { return p.turn }

// MayTry reports whether it is the place's turn: it is the first, or may pass.
func (p *Place) MayTry() bool {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	may := p.mayTry || p.line.places.Front() == p.at
	p.mayTry = false
	return may
}

// LetPass is for a place that has tried in vain. It has one behind the first try whose bytes there
// is room for, if the place is the first and may be passed once more: one at a time.
func (p *Place) LetPass(room uint64) {
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	p.passes = false
	if l.places.Front() != p.at || p.passed >= l.Passes {
		return
	}
	next := p.at.Next()
	for range passable {
		if next == nil {
			return
		}
		other := next.Value.(*Place)
		if other.passes {
			return // what it finds is not known yet; who leaves wakes the first
		}
		if other.bytes <= room {
			p.passed++
			other.mayTry, other.passes = true, true
			other.wake()
			return
		}
		next = next.Next()
	}
}

// Leave gives the place up. If it was the first, the next has its turn.
func (p *Place) Leave() {
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	l.places.Remove(p.at)
	if l.places.Len() == 0 && l.OnWaiters != nil {
		l.OnWaiters(false)
	}
	l.wakeFirst()
}
