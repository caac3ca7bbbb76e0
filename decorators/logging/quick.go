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
	to := q.stripes(o)
	if to == nil || !q.below.Layer.Allocate(o) {
		return false
	}
	q.note(to, oplog.OpAllocate, o)
	return true
}

// Deallocate notes the block that was given back.
func (q *quickLog) Deallocate(o *quick.Op) bool {
	to := q.stripes(o)
	if to == nil || !q.below.Layer.Deallocate(o) {
		return false
	}
	q.note(to, oplog.OpDeallocate, o)
	return true
}

// stripes are those of a lane, which is locked: one of each ring. If it has none yet, the operation lacks them.
func (q *quickLog) stripes(o *quick.Op) []*stripe {
	of, _ := o.Lane.Part(q.part).([]*stripe)
	if of == nil {
		o.Lacks = q
	}
	return of
}

func (q *quickLog) note(to []*stripe, op oplog.Op, o *quick.Op) {
	for i, p := range to {
		p.note(q.r.rings[i], op, &o.Block, o.Began, o.Took())
	}
}

// Prepare gives a lane stripes.
func (q *quickLog) Prepare(l *quick.Lane) bool {
	for _, ring := range q.r.rings {
		if ring.crowded.Load() {
			return false
		}
	}
	if !q.preparing.CompareAndSwap(false, true) {
		return false // another goroutine is about it, maybe for this lane
	}
	defer q.preparing.Store(false)
	of := make([]*stripe, len(q.r.rings))
	for i, ring := range q.r.rings {
		if of[i] = ring.ofLane(l); of[i] == nil {
			return false // the next one tries again
		}
	}
	l.Lock()
	defer l.Unlock()
	if l.Part(q.part) == nil {
		l.SetPart(q.part, of)
	}
	return true
}

// SharedRecords are the upstream's, for the layers above: see package path.
func (r *Resource) SharedRecords() (core.Resource, *path.Records) {
	return r, path.SharedBy(r.upstream)
}

// QuickPath is the layer's, for the layers of this module: see package quick.
func (r *Resource) QuickPath() *quick.Path { return r.path }
