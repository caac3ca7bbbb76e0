package budget

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/quick"
)

// quickBudget serves what needs no claim and no recall of others' credit, in a stream ledger that
// the lane's lock guards.
type quickBudget struct {
	r     *Resource
	below *quick.Path
}

// Allocate charges the request, and undoes that if it is declined below.
func (q *quickBudget) Allocate(o *quick.Op) bool {
	l := q.r.streams.atHand(o.Request.Stream, o.Lane)
	if l == nil || o.Request.Claim != 0 {
		return false
	}
	var g grant
	if q.r.fillFrom(l, &o.Request, nil, &g) != nil {
		return false
	}
	if !q.below.Layer.Allocate(o) {
		g.undoLocked()
		return false
	}
	g.become(o.Block.ID.Generation, q.r.part.Of(o.Record))
	return true
}

// Deallocate takes the block that is freed off the ledger.
func (q *quickBudget) Deallocate(o *quick.Op) bool {
	l := q.r.streams.atHand(o.ID.AllocStream, o.Lane)
	if l == nil || !q.below.Layer.Deallocate(o) {
		return false
	}
	l.release(o.ID.Generation, q.r.part.Of(o.Record))
	return true
}

// atHand is the ledger of a stream, if its lock is that of a lane, which is locked, and is found
// without another lock; else nil.
func (t *streamLedgers) atHand(id core.StreamID, of *quick.Lane) *streamLedger {
	if l := t.slot(id).Load(); l != nil && l.stream == id && l.mu == of && !l.dropped {
		return l
	}
	return nil
}

// SharedRecords are those of the layers above: see package path.
func (r *Resource) SharedRecords() (core.Resource, *path.Records) { return r, r.records }

// QuickPath is the layer's, for the layers of this module: see package quick.
func (r *Resource) QuickPath() *quick.Path { return r.path }
