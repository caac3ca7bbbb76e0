package fence

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Frontier is the uses of a freed block on other streams that the next use of its memory must come
// after, and that the stream of the free is not ordered after. Nothing waits for them at the free:
// either the host sees them completed first, or whichever stream takes the memory waits. It does
// not change, is counted by reference and is safe for concurrent use.
type Frontier struct {
	refs   atomic.Int32
	points []*Point
}

var frontiers = sync.Pool{New: func() any { return new(Frontier) }}

// Frontier returns what a free on s must come after and does not, with a reference; nil for
// nothing. It asks the driver about each point that s is not ordered after; a point that cannot be
// asked for is not completed. s must be locked. None of the points is deferred, see
// [Plan.QueueFree].
func (plan *Plan) Frontier(s *Stream) *Frontier {
	var f *Frontier
	for i := range plan.deps {
		p := plan.deps[i].point
		if i > 0 && plan.deps[i-1].point == p || p.needsNoWait() || s.clock.covers(p.stream.slot, p.seq) {
			continue
		}
		if done, err := p.stream.QueryCompleted(p); done && err == nil {
			continue
		}
		if f == nil {
			f = frontiers.Get().(*Frontier)
			f.refs.Store(1)
		}
		p.Retain()
		f.points = append(f.points, p)
	}
	return f
}

// JoinFrontiers returns a frontier of all that some are of, whose references it takes over.
func JoinFrontiers(all iter.Seq[*Frontier]) *Frontier {
	joined := frontiers.Get().(*Frontier)
	joined.refs.Store(1)
	for f := range all {
		for _, p := range f.points {
			p.Retain()
			joined.points = append(joined.points, p)
		}
		f.Release()
	}
	return joined
}

// Retain takes another reference, for who has one.
func (f *Frontier) Retain() { f.refs.Add(1) }

// Release gives up a reference. As of a [Point], no block and no lane may be locked.
func (f *Frontier) Release() {
	if f.refs.Add(-1) > 0 {
		return
	}
	for _, p := range f.points {
		p.Release()
	}
	clear(f.points)
	f.points = f.points[:0]
	frontiers.Put(f)
}

// IsCompleted reports whether the host knows all of it to be completed. It makes no call of the driver.
func (f *Frontier) IsCompleted() bool {
	return !slices.ContainsFunc(f.points, func(p *Point) bool { return !p.isCompleted() })
}

// IsBefore reports whether what is enqueued on s from now on comes after all of it, without a
// wait. s must be locked.
func (f *Frontier) IsBefore(s *Stream) bool {
	return !slices.ContainsFunc(f.points, func(p *Point) bool {
		return p.stream != s && !p.needsNoWait() && !s.clock.covers(p.stream.slot, p.seq)
	})
}

// AddTo adds all of it to what s is to wait for by plan.
func (f *Frontier) AddTo(plan *Plan, s *Stream) {
	for _, p := range f.points {
		plan.add(s, &Access{point: p}, -1)
	}
}

// Events yields the events of the points.
func (f *Frontier) Events(yield func(driver.Event) bool) {
	for _, p := range f.points {
		if !yield(p.event) {
			return
		}
	}
}

// Look asks the driver which frontiers are completed. Of several points of one stream behind each
// other it asks no more when an older one is not. It is one goroutine's.
type Look struct{ unfinished []*Point }

// IsCompleted asks as far as the host does not know. Errors are the driver's.
func (l *Look) IsCompleted(f *Frontier) (bool, error) {
	for _, p := range f.points {
		if p.isCompleted() {
			continue
		}
		if slices.ContainsFunc(l.unfinished, func(u *Point) bool { return u.stream == p.stream && u.seq <= p.seq }) {
			return false, nil
		}
		if done, err := p.stream.QueryCompleted(p); err != nil || !done {
			l.unfinished = append(l.unfinished, p)
			return false, err
		}
	}
	return true, nil
}
