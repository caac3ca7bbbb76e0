package fence

import (
	"sync"
	"sync/atomic"
)

// pointList is the free list of one stream's points, each with an event. It has its
// own lock, so that giving back a point never waits for a driver call.
type pointList struct {
	port Port
	// spare is one free point, handed over without the lock: an allocation
	// and a free in turn need no more.
	spare atomic.Pointer[Point]
	// closed: the stream is gone, so events are destroyed when they come back.
	closed atomic.Bool
	made   atomic.Int64

	mu   sync.Mutex
	free []*Point
}

// take returns a free point, nil if there is none.
func (l *pointList) take() *Point {
	if p := l.spare.Swap(nil); p != nil {
		return p
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.free)
	if n == 0 {
		return nil
	}
	p := l.free[n-1]
	l.free = l.free[:n-1]
	return p
}

// put takes back a point that nobody refers to; one without an event is forgotten.
func (l *pointList) put(p *Point) {
	if p.detached {
		return
	}
	if l.spare.CompareAndSwap(nil, p) {
		if !l.closed.Load() || !l.spare.CompareAndSwap(p, nil) {
			return // in the list, or taken over by close
		}
	} else if l.add(p) {
		return
	}
	_ = l.destroy(p) // the stream is gone, nobody could be told
}

// add adds p to the list unless that is closed.
func (l *pointList) add(p *Point) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return false
	}
	l.free = append(l.free, p)
	return true
}

func (l *pointList) destroy(p *Point) error {
	if err := l.port.EventDestroy(p.event); err != nil {
		l.mu.Lock()
		l.free = append(l.free, p) // for the next close
		l.mu.Unlock()
		return err
	}
	l.made.Add(-1)
	return nil
}

// close gives the events of the free points back to the driver, and the others as
// they are released. It returns the first error, and may be called again after one.
func (l *pointList) close() error {
	l.mu.Lock()
	l.closed.Store(true)
	free := l.free
	l.free = nil
	l.mu.Unlock()
	if p := l.spare.Swap(nil); p != nil {
		free = append(free, p)
	}
	var first error
	for _, p := range free {
		if err := l.destroy(p); err != nil && first == nil {
			first = err
		}
	}
	return first
}
