package telemetry

import (
	"github.com/fencepost-gpu/fencepost/internal/quick"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// quickCalls counts what is not traced.
type quickCalls struct {
	r     *Resource
	below *quick.Path
	part  int
}

// calls are the counters of a lane, which is locked.
func (q *quickCalls) calls(l *quick.Lane) *metrics.LaneCalls {
	if c, ok := l.Part(q.part).(*metrics.LaneCalls); ok {
		return c
	}
	c := q.r.calls.OfLane(l)
	l.SetPart(q.part, c)
	return c
}

// Allocate counts the call.
func (q *quickCalls) Allocate(o *quick.Op) bool {
	ok := q.below.Layer.Allocate(o)
	if ok {
		q.calls(o.Lane).NoteAllocate(o.Took())
	}
	return ok
}

// Deallocate counts the call.
func (q *quickCalls) Deallocate(o *quick.Op) bool {
	ok := q.below.Layer.Deallocate(o)
	if ok {
		q.calls(o.Lane).NoteDeallocate(o.Took())
	}
	return ok
}

// QuickPath is the layer's, for the layers of this module: see package quick.
func (r *Resource) QuickPath() *quick.Path { return r.path }
