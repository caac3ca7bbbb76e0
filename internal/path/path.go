package path

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/cures"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// Op is an allocation or a free on its way through the layers.
type Op struct {
	// Lane is the one whose lock is held while the operation is served.
	Lane *Lane
	// Request is what is to be allocated, normalized. A layer that changes it for those beneath and is
	// declined by them undoes that.
	Request core.Request
	// ID is the block to be freed.
	ID core.BlockID
	// Block is what the backend made of it, once it has served the operation.
	Block core.Block
	// Record is the block's, nil if the layer has to look for it. Engine is the backend's own of it.
	Record *Record
	Engine any
	// Lacks is the layer that declines, set by that.
	Lacks *Path
	// Free: it is a free.
	Free bool
	// Got is the layer whose Prepare has done its part of the operation, and that of the layers beneath, already.
	Got *Path
	// AtOnce: the backend has served the operation under the lock. Of such a free no listener has heard.
	AtOnce bool
	// NotAtOnce, set by a layer above, keeps the backend from that.
	NotAtOnce bool
	// Late: its context was made by a [Contexts].
	Late bool
	// Waited is how long a layer has waited for memory for the operation already.
	Waited time.Duration
	// Then, if the backend sets it, is called with Block when the lane is not locked any more.
	Then func(core.Block)
	// Span is that of the caller's context, zero unless it is sampled, which Traced says.
	Span   core.SpanRef
	Traced bool
	// Began is when the caller came, Ended when the backend had served it: the same, if it was served at once and
	// not Timed.
	Began, Ended monotime.Instant
	// Timed: the clock is read when it has ended, too. Of the allocations, and of the frees, that a lane serves at once
	// that is one in timedEach, and all in sampled traces or with something to settle.
	Timed bool

	search  *cures.Search
	settles uint8 // a bit for each layer
	keeps   bool
	kept    [maxLayers]any
	numbers [maxLayers]uint64
}

// Took is how long the caller has waited, less the way back through the layers; 0 if the operation was not timed.
func (o *Op) Took() time.Duration { return o.Ended.Since(o.Began) }

// Settles has the layer of a path called once the operation is served and the lane is unlocked.
func (o *Op) Settles(p *Path) { o.settles |= 1 << p.number }

// Reaped is the error of the reap that was made because the operation lacked memory, nil if there is
// none.
func (o *Op) Reaped() error {
	if o.search == nil {
		return nil
	}
	return o.search.Reaped()
}

// Keep keeps what a layer of the path has got for the operation, until that has ended.
func (o *Op) Keep(p *Path, what any) { o.kept[p.number], o.keeps = what, true }

// Kept is what the layer keeps, nil if that is nothing.
func (o *Op) Kept(p *Path) any {
	if !o.keeps {
		return nil
	}
	return o.kept[p.number]
}

// KeepNumber keeps a number as [Op.Keep] does; Number is that, 0 if there is none.
func (o *Op) KeepNumber(p *Path, n uint64) { o.numbers[p.number], o.keeps = n, true }

// Number is what KeepNumber has kept.
func (o *Op) Number(p *Path) uint64 {
	if !o.keeps {
		return 0
	}
	return o.numbers[p.number]
}

// Decline is for a layer that does not serve the operation as it is, and has to be prepared.
func (o *Op) Decline(p *Path) bool {
	o.Lacks = p
	return false
}

// Layer is a layer's share of its operations.
type Layer interface {
	// Allocate makes o.Block the block for o.Request, or declines. The lane of o is locked.
	Allocate(o *Op) bool
	// Deallocate frees o.ID, of which it makes o.Block, or declines. The lane of o is locked.
	Deallocate(o *Op) bool
	// Prepare gets what the layer lacked to serve o. No lock is held.
	Prepare(context.Context, *Op) error
	// Yield gives back what the layer keeps of an operation that lacks memory, while that is sought:
	// others may need it. It may add to the error what it knows at the moment. No lock is held.
	Yield(*Op, error)
	// Settle is called when the operation has ended, without a lock, of the innermost layer first: with an error of
	// each layer that was asked, which gives back what it keeps and may explain the error, and otherwise of
	// those that asked for it ([Op.Settles]).
	Settle(context.Context, *Op, error) error
}

// Simple is a layer that lacks nothing, keeps nothing and has nothing to settle, for others to embed.
type Simple struct{}

// Prepare has nothing to get.
func (Simple) Prepare(context.Context, *Op) error { return nil }

// Yield has nothing to give back.
func (Simple) Yield(*Op, error) {}

// Settle leaves the error as it is.
func (Simple) Settle(_ context.Context, _ *Op, err error) error { return err }

// ErrAbandoned is what the layers settle an operation with in which code of the user's has panicked.
var ErrAbandoned = errors.New("abandoned: a function that the operation called has panicked")

// Path is the way of allocations and frees from one layer down.
type Path struct {
	// Below is the next layer's, nil for a backend's.
	Below *Path
	Layer
	resource core.Resource
	lanes    *withShared
	layers   *atomic.Int32 // of all paths over the backend
	room     *cures.Room
	segment  int // of those that share the room
	number   int
	// down are the layers, the backend first and the path's own last.
	down []*Path
}

// Resource is a layer that has a path.
type Resource interface {
	core.Resource
	// Path is the layer's.
	Path() *Path
}

// New is the path of a backend.
func New(backend core.Resource, layer Layer, lanes Lanes) *Path {
	p := &Path{Layer: layer, resource: backend, lanes: &withShared{Lanes: lanes}, layers: new(atomic.Int32),
		room: cures.New()}
	p.layers.Store(BackendPart + 1)
	if keeping, ok := lanes.(Keeping); ok {
		p.lanes.shares.keeping = keeping
		p.lanes.shares.all.Store(&ordinaries{top: p})
	}
	p.down = []*Path{p}
	return p
}

// Of is the path of a layer, nil if it has none. A decorator that embeds one that has is not
// taken for it.
func Of(r core.Resource) *Path {
	q, ok := r.(Resource)
	if !ok {
		return nil
	}
	p := q.Path()
	if p == nil || p.resource != r {
		return nil
	}
	return p
}

// Over is the path over which a layer above upstream lies: upstream's, or one that begins with calls of
// upstream. The latter is for a resource that has none, and for one whose lanes, or records if the layer needs a part of
// those, have no room for one more layer. It is for construction.
func Over(upstream core.Resource, needsRecord bool) *Path {
	p := Of(upstream)
	if p == nil || p.layers.Load() == maxLayers || needsRecord && !hasRoom(upstream) {
		f := &foreign{upstream: upstream}
		f.path = New(upstream, f, nil)
		for below := upstream; below != nil; below = below.Unwrap() {
			if q := Of(below); q != nil {
				f.path.room, f.path.segment = q.room, q.room.Split()
				break
			}
		}
		return f.path
	}
	return p
}

// Extend is the path of a layer above p, with its share of ordinary operations; nil if it has none.
// It is for construction.
func (p *Path) Extend(resource core.Resource, layer Layer, share *Ordinary) *Path {
	above := &Path{Below: p, Layer: layer, resource: resource, lanes: p.lanes, layers: p.layers,
		room: p.room, segment: p.segment, number: int(p.layers.Add(1)) - 1}
	above.down = slices.Concat(p.down, []*Path{above})
	p.lanes.shares.add(above, share)
	return above
}

// Shared are the records that upstream, whose path p should be, shares with the layers above; nil if p begins with
// calls of upstream.
func (p *Path) Shared(upstream core.Resource) *Records {
	if p.Calls() {
		return nil
	}
	return SharedBy(upstream)
}

// Calls reports whether p is the beginning of a path over a resource that has none: calls of that.
func (p *Path) Calls() bool {
	_, calls := p.Layer.(*foreign)
	return calls
}

// Room is where the stack looks for memory.
func (p *Path) Room() *cures.Room { return p.room }

// Resource is the layer.
func (p *Path) Resource() core.Resource { return p.resource }

// Number is which part of each lane is the layer's.
func (p *Path) Number() int { return p.number }

// Lane is the lane of a lease.
func (p *Path) Lane(lease core.StreamID) *Lane { return p.lanes.of(lease) }

// Contexts makes the context of an operation that is not served at once.
type Contexts interface {
	Begin(context.Context) context.Context
	// End is told when the operation has ended.
	End(context.Context)
}

// Allocate makes *b the block for a request. late, unless nil, makes the context of what is not
// served at once.
func (p *Path) Allocate(ctx context.Context, late Contexts, req *core.Request, b *core.Block) error {
	l := p.lanes.of(req.Stream)
	span, began := core.SpanOf(ctx), monotime.Now()
	l.mu.Lock()
	return p.allocate(ctx, late, l, span, began, req, b)
}

// allocate is Allocate in the lane of the request, which is locked.
func (p *Path) allocate(ctx context.Context, late Contexts, l *Lane, span core.SpanRef, began monotime.Instant,
	req *core.Request, b *core.Block) error {
	if span.IsZero() && p.allocateOrdinary(l, began, req, b) {
		return nil
	}
	l.notOrdinary(req.Bytes)
	o := &l.op
	o.begin(l, false, span, began)
	o.Request = *req
	err := o.Request.Normalize("Allocate")
	return p.begun(ctx, late, o, err == nil && p.Layer.Allocate(o), err, b)
}

// Deallocate frees a block, and makes *b what became of it.
func (p *Path) Deallocate(ctx context.Context, late Contexts, id *core.BlockID, b *core.Block) error {
	l := p.lanes.of(id.AllocStream)
	span, began := core.SpanOf(ctx), monotime.Now()
	l.mu.Lock()
	return p.deallocate(ctx, late, l, span, began, id, b)
}

// deallocate is Deallocate in the lane of the block, which is locked.
func (p *Path) deallocate(ctx context.Context, late Contexts, l *Lane, span core.SpanRef, began monotime.Instant,
	id *core.BlockID, b *core.Block) error {
	if span.IsZero() && p.freeOrdinary(l, began, id, b) {
		return nil
	}
	l.notOrdinary(0)
	o := &l.op
	o.begin(l, true, span, began)
	o.ID = *id
	o.NotAtOnce = int(p.layers.Load()) != len(p.down) // layers that are not asked have to hear of it
	o.Record, o.Engine = p.lanes.record(l, id.Generation)
	return p.begun(ctx, late, o, p.Layer.Deallocate(o), nil, b)
}

// timedEach: to read the clock takes longer than much of the rest.
const timedEach = 16

// begin makes o an operation that nothing was done for yet.
func (o *Op) begin(l *Lane, free bool, span core.SpanRef, began monotime.Instant) {
	o.Lane, o.Free, o.Span, o.Began, o.Ended = l, free, span, began, began
	begun := &l.begun[0]
	if free {
		begun = &l.begun[1]
	}
	o.Traced = !span.IsZero()
	o.Timed = *begun%timedEach == 0 || o.Traced
	*begun++
	o.Record, o.Engine, o.Lacks, o.Got = nil, nil, nil, nil
	o.AtOnce, o.NotAtOnce, o.Late, o.settles, o.Waited = false, false, false, 0, 0
	if o.Then != nil {
		o.Then = nil
	}
}

// begun unlocks the lane of an operation that was tried, and goes on with it if that is not all.
func (p *Path) begun(ctx context.Context, late Contexts, o *Op, served bool, err error, b *core.Block) error {
	if !served || o.settles != 0 {
		if served && !o.Timed {
			o.Ended = monotime.Now()
		}
		o.Timed = true
		out := o.takeOut()
		out.Lane.Unlock()
		if late == nil {
			return p.end(ctx, out, served, err, b)
		}
		ctx, out.Late = late.Begin(ctx), true
		err = p.end(ctx, out, served, err, b)
		late.End(ctx)
		return err
	}
	*b = o.Block
	then := o.Then
	o.Lane.Unlock()
	if then != nil {
		then(*b)
	}
	return nil
}

// takeOut copies an operation out of its lane, which is locked.
func (o *Op) takeOut() *Op {
	out := ops.Get().(*Op)
	*out = *o
	if o.keeps {
		o.keeps, o.kept, o.numbers = false, [maxLayers]any{}, [maxLayers]uint64{}
	}
	return out
}

// ops are of operations that are not served at once, or have something to settle.
var ops = sync.Pool{New: func() any { return new(Op) }}

// end prepares the operation and tries it again until it is served or refused, and settles it. Of the layers it is
// the affair of those that were asked: from the innermost one that has declined on.
func (p *Path) end(ctx context.Context, o *Op, served bool, err error, b *core.Block) error {
	asked, ended := p.down[len(p.down)-1:], false
	defer func() {
		if !ended {
			p.abandon(context.WithoutCancel(ctx), o, served, asked)
		}
		o.Record, o.Engine, o.Then, o.search = nil, nil, nil, nil
		if o.keeps {
			o.kept = [maxLayers]any{}
		}
		ops.Put(o)
	}()
	for !served && err == nil {
		if from := len(p.down) - len(o.Lacks.down) + 1; from > len(asked) {
			asked = p.down[len(p.down)-from:]
		}
		if err = o.Lacks.Prepare(ctx, o); err == nil || p.cured(ctx, asked, o, err) {
			err, served = nil, p.try(o)
		}
	}
	if o.search != nil {
		err = o.search.End(err)
	}
	if err == nil {
		asked = p.down
		if o.Then != nil {
			o.Then(o.Block)
		}
	}
	if err != nil || o.settles != 0 {
		err = settle(ctx, asked, o, err)
	}
	if o.search != nil || err != nil && !o.Free {
		err = p.tell(ctx, o, err)
	}
	if err == nil {
		*b = o.Block
	}
	ended = true
	return err
}

// try serves the operation, if nothing lacks.
func (p *Path) try(o *Op) bool {
	o.Lane.Lock()
	defer o.Lane.Unlock()
	if o.Free {
		return p.Layer.Deallocate(o)
	}
	return p.Layer.Allocate(o)
}

// cured looks for memory that an allocation lacks.
func (p *Path) cured(ctx context.Context, asked []*Path, o *Op, err error) bool {
	if o.Free || !cures.Short(err) || cures.WasSought(err) {
		return false
	}
	for _, layer := range asked {
		layer.Yield(o, err)
	}
	if o.search == nil {
		o.search = p.room.Begin(cures.Want{Request: &o.Request, Waited: o.Waited}, err)
	}
	return o.search.Another(ctx, err)
}

// tell tells of a request that lacked memory, once: the parts of the stack above do not look again.
func (p *Path) tell(ctx context.Context, o *Op, err error) error {
	if cures.WasSought(err) {
		return p.Told(cures.Bare(err))
	}
	p.room.Tell(ctx, o.search, &o.Request, err)
	return p.Told(err)
}

// Told is the error of a request that lacked memory as the layer above gets it.
func (p *Path) Told(err error) error {
	if err != nil && cures.Short(err) && !cures.WasSought(err) && p.room.Above(p.segment) {
		return cures.Sought(err)
	}
	return err
}

// settle asks all that have to, whatever the program's code does in one of them.
func settle(ctx context.Context, layers []*Path, o *Op, err error) error {
	usercode.All(layers, func(layer *Path) {
		if err != nil || o.settles&(1<<layer.number) != 0 {
			err = layer.Settle(ctx, o, err)
		}
	})
	return err
}

// abandon gives back a block that its caller does not get.
func (p *Path) abandon(ctx context.Context, o *Op, served bool, asked []*Path) {
	if o.search != nil {
		_ = o.search.End(ErrAbandoned)
	}
	if !served {
		_ = settle(ctx, asked, o, ErrAbandoned)
	}
	switch {
	case o.Free:
	case served:
		_, _ = p.resource.Deallocate(ctx, o.Block.ID)
	case o.Got != nil:
		_, _ = o.Got.resource.Deallocate(ctx, o.Block.ID)
	}
}

// foreign is the innermost layer of a path over a resource that has none, or whose path ends: calls of that.
type foreign struct {
	Simple
	path     *Path
	upstream core.Resource
}

// Allocate hands over the block that Prepare has got.
func (f *foreign) Allocate(o *Op) bool { return o.Got == f.path || o.Decline(f.path) }

// Deallocate hands over what became of the block in Prepare.
func (f *foreign) Deallocate(o *Op) bool { return o.Got == f.path || o.Decline(f.path) }

// Prepare calls the resource.
func (f *foreign) Prepare(ctx context.Context, o *Op) (err error) {
	if o.Waited > 0 {
		ctx = cures.Waited(ctx, o.Waited)
	}
	if o.Free {
		o.Block, err = f.upstream.Deallocate(ctx, o.ID)
	} else {
		o.Block, err = f.upstream.Allocate(ctx, o.Request)
	}
	if err == nil {
		o.Ended, o.Got = monotime.Now(), f.path
	}
	return err
}
