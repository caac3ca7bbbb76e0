package logging

import (
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/quick"
)

// quickLog notes what was served in the rings. Where there are other sinks, which number
// their records, there is no quick path.
type quickLog struct {
	r     *Resource
	below *quick.Path
	part  int

	preparing atomic.Bool
}

// Allocate notes the block.
func (q *quickLog) Allocate(o *quick.Op) bool {
	to := q.stripes(o.Lane)
	if to == nil || !q.below.Layer.Allocate(o) {
		return false
	}
	q.note(to, oplog.OpAllocate, o)
	return true
}

// Deallocate notes the block that was given back.
func (q *quickLog) Deallocate(o *quick.Op) bool {
	to := q.stripes(o.Lane)
	if to == nil || !q.below.Layer.Deallocate(o) {
		return false
	}
	q.note(to, oplog.OpDeallocate, o)
	return true
}

// stripes are those of a lane, which is locked: one of each ring; nil if it has none yet.
func (q *quickLog) stripes(l *quick.Lane) []*stripe {
	of, _ := l.Part(q.part).([]*stripe)
	return of
}

func (q *quickLog) note(to []*stripe, op oplog.Op, o *quick.Op) {
	for i, p := range to {
		p.note(q.r.rings[i], op, &o.Block, o.Began, o.Took())
	}
}

// prepare gives a lane stripes if it has none. It is the ordinary way's, because that may wait.
func (q *quickLog) prepare(l *quick.Lane) {
	for _, ring := range q.r.rings {
		if ring.crowded.Load() {
			return // or each operation of every lane that has come too late would ask
		}
	}
	l.Lock()
	prepared := q.stripes(l) != nil
	l.Unlock()
	if prepared {
		return
	}
	if !q.preparing.CompareAndSwap(false, true) {
		return // somebody else is about it, maybe for this lane
	}
	defer q.preparing.Store(false)
	of := make([]*stripe, len(q.r.rings))
	for i, ring := range q.r.rings {
		if of[i] = ring.ofLane(l); of[i] == nil {
			return // the next one tries again
		}
	}
	l.Lock()
	defer l.Unlock()
	if q.stripes(l) == nil {
		l.SetPart(q.part, of)
	}
}

// SharedRecords are the upstream's, for the layers above: see package path.
func (r *Resource) SharedRecords() (core.Resource, *path.Records) {
	return r, path.SharedBy(r.upstream)
}

// QuickPath is the layer's, for the layers of this module: see package quick.
func (r *Resource) QuickPath() *quick.Path { return r.path }
