// Package quick is the quick path of allocations and frees: what all layers of a stack can
// serve at once, without a call of the driver, is one record passed by pointer under one lock.
//
// # The protocol
//
// Each physical stream has a [Lane], whose lock is the stream's. The outermost layer that has a
// [Path] reads the clock, locks the lane of the operation's stream, and hands the operation
// down from layer to layer as an [Op]. A layer serves it or declines it:
//
//   - A layer that declines has changed nothing, and neither has any layer above it: what one
//     must do before it asks the layer below, such as charging a budget, it undoes.
//   - If the layer that declines can get what it lacks ([Op].Lacks), the lane is unlocked, the layer is
//     prepared, and the operation is tried again.
//   - If it is declined for good, the operation goes the ordinary way, by [core.Resource], which
//     does everything and tells the reason of a failure. Both ways call the same functions
//     on the same books, so nothing of the stack is true on one way only.
//   - Under the lock there is no call of the driver, no launch of a guard's, no refusal, no error and no
//     listener.
//
// The lock of a lane comes before every lock of a layer: who holds one of those does not ask
// for a lane. Nobody holds two lanes, or a lane and waits for a stream.
//
// # Who takes part
//
// A backend makes a Path with [New], and each layer above it one with [Path.Extend], from
// that of its upstream ([Of]). Nothing is found by walking Unwrap: a decorator of somebody's own, which
// passes no path on, sees every call of what lies above it, and beneath it the path begins with the
// layer that it calls.
package quick

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/listeners"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// Layer is the quick form of a layer's operations. The lane of o is locked.
type Layer interface {
	// Allocate makes o.Block the block for o.Request, or changes nothing and reports false.
	Allocate(o *Op) bool
	// Deallocate frees o.ID, of which it makes o.Block, or changes nothing and reports false.
	Deallocate(o *Op) bool
}

// Preparer is a layer that can get what it lacks to serve an operation on a lane.
type Preparer interface {
	// Prepare gets it, with no lock held, and reports whether another try is worth it. It may block no longer than
	// the operation does on the ordinary way.
	Prepare(*Lane) bool
}

// maxTries bounds how often an operation is tried: what a layer got others may have taken by then.
const maxTries = 4

// Lanes finds lanes: those of the leases of one device.
type Lanes interface {
	// Lane is that of the stream on which the lease is now, nil if it is on none, or
	// if the stream is never quick. It takes no lock.
	Lane(lease core.StreamID) *Lane
	// Record is that of a block of a lane, which is locked, with what the backend knows it by; nil if
	// the lane has no such block.
	Record(*Lane, core.Generation) (rec *path.Record, engine any)
}

// Path is the quick path from one layer down. A nil Path declines everything.
type Path struct {
	Layer
	layer core.Resource
	lanes Lanes
	parts *int
	// inner: a layer above begins the path.
	inner bool
}

// Resource is a layer that has a path.
type Resource interface {
	core.Resource
	// QuickPath is the layer's, nil if it has none.
	QuickPath() *Path
}

// BackendPart is the number of the backend's part of each lane.
const BackendPart = 0

// New is the path of a backend.
func New(backend core.Resource, form Layer, lanes Lanes) *Path {
	parts := BackendPart + 1
	return &Path{Layer: form, layer: backend, lanes: lanes, parts: &parts}
}

// Of is the path of a layer, nil if it has none. A decorator that embeds one that has is not
// taken for it.
func Of(r core.Resource) *Path {
	q, ok := r.(Resource)
	if !ok {
		return nil
	}
	p := q.QuickPath()
	if p == nil || p.layer != r {
		return nil
	}
	return p
}

// Extend is the path of a layer above p, and makes p an inner one; nil if p is, or if a lane has no
// part left for one more layer. It is for construction.
func (p *Path) Extend(layer core.Resource, form Layer) *Path {
	if p == nil || *p.parts >= maxParts {
		return nil
	}
	p.inner = true
	return &Path{Layer: form, layer: layer, lanes: p.lanes, parts: p.parts}
}

// NewPart is the number of another part of each lane; zero without a path. There must be no more than
// one for each layer, and a layer that [Path.Extend] has refused must not use it.
func (p *Path) NewPart() int {
	if p == nil {
		return 0
	}
	number := *p.parts
	*p.parts++
	return number
}

// Allocate serves an allocation for req from the outermost layer of the path. If it reports
// false nothing has happened.
func (p *Path) Allocate(ctx context.Context, req *core.Request, b *core.Block) bool {
	l := p.admit(ctx, req.Stream)
	if l == nil {
		return false
	}
	began := monotime.Now()
	for try := 1; ; try++ {
		l.Lock()
		o := &l.op
		o.Lane, o.Began, o.After, o.Lacks, o.Request = l, began, nil, nil, *req
		ok := o.Request.Normalize("Allocate") == nil && p.Layer.Allocate(o)
		lacks := o.Lacks
		if o.end(ok, b) {
			return true
		}
		if lacks == nil || try == maxTries || !lacks.Prepare(l) {
			return false
		}
	}
}

// Deallocate is Allocate for the free of a block.
func (p *Path) Deallocate(ctx context.Context, id *core.BlockID, b *core.Block) bool {
	l := p.admit(ctx, id.AllocStream)
	if l == nil {
		return false
	}
	began := monotime.Now()
	var hear [2]*listeners.List
	for try := 1; ; try++ {
		l.Lock()
		o := &l.op
		o.Lane, o.Began, o.After, o.Lacks, o.Hear, o.ID = l, began, nil, nil, hear, *id
		o.Record, o.Engine = p.lanes.Record(l, id.Generation)
		ok := o.Record != nil && p.Layer.Deallocate(o)
		lacks, heard := o.Lacks, o.Hear
		if o.end(ok, b) {
			hear = heard
			break
		}
		if lacks == nil || try == maxTries || !lacks.Prepare(l) {
			return false
		}
	}
	if hear[1] != nil {
		defer hear[1].ReleasedQuickly(*b) // also where one of the first panics
	}
	if hear[0] != nil {
		hear[0].ReleasedQuickly(*b)
	}
	return true
}

// end hands over what was served, if it was, and unlocks the lane.
func (o *Op) end(served bool, b *core.Block) bool {
	var after func(core.Block)
	if served {
		*b, after = o.Block, o.After
	}
	o.Lane.Unlock()
	if after != nil {
		after(*b)
	}
	return served
}

// admit is the lane of an operation that begins here, nil if it has to go the ordinary
// way: the reports of layers would name the span that ctx carries.
func (p *Path) admit(ctx context.Context, lease core.StreamID) *Lane {
	if p == nil || p.inner || !core.SpanOf(ctx).IsZero() {
		return nil
	}
	return p.Lane(lease)
}

// Lane is the lane of a lease, for a layer that keeps a part there; nil without a path.
func (p *Path) Lane(lease core.StreamID) *Lane {
	if p == nil {
		return nil
	}
	return p.lanes.Lane(lease)
}
