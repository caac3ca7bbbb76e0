package quick_test

import (
	"context"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/listeners"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/quick"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// backend serves the quick path for one lease, if it is willing.
type backend struct {
	core.Resource
	path    *quick.Path
	lane    quick.Lane
	willing bool
	served  []quick.Op
	record  path.Record
	heard   listeners.List
}

const lease = core.StreamID(7)

func newBackend() *backend {
	b := &backend{Resource: coretest.NewFake(0), willing: true}
	b.path = quick.New(b, form{b}, b)
	return b
}

func (b *backend) QuickPath() *quick.Path    { return b.path }
func (b *backend) Subscribe(l core.Listener) { b.heard.Add(l) }
func (b *backend) Lane(id core.StreamID) *quick.Lane {
	if id != lease {
		return nil
	}
	return &b.lane
}

func (b *backend) Record(*quick.Lane, core.Generation) (*path.Record, any) { return &b.record, b }

type form struct{ b *backend }

func (f form) Allocate(o *quick.Op) bool {
	if f.b.lane.TryLock() {
		panic("the lane is not locked")
	}
	o.Block = core.Block{Bytes: o.Request.Bytes}
	return f.serve(o)
}

func (f form) Deallocate(o *quick.Op) bool {
	o.Block = core.Block{ID: o.ID, State: core.Freed}
	return f.serve(o)
}

func (f form) serve(o *quick.Op) bool {
	f.b.served = append(f.b.served, *o)
	o.Ended = o.Began
	return f.b.willing
}

// layer passes everything on.
type layer struct {
	core.Resource
	path *quick.Path
}

func newLayer(up core.Resource) *layer {
	l := &layer{Resource: up}
	below := quick.Of(up)
	l.path = below.Extend(l, passing{below})
	return l
}

func (l *layer) QuickPath() *quick.Path { return l.path }

type passing struct{ below *quick.Path }

func (p passing) Allocate(o *quick.Op) bool   { return p.below.Layer.Allocate(o) }
func (p passing) Deallocate(o *quick.Op) bool { return p.below.Layer.Deallocate(o) }

func allocate(ctx context.Context, p *quick.Path, req core.Request) (core.Block, bool) {
	var b core.Block
	ok := p.Allocate(ctx, &req, &b)
	return b, ok
}

func TestAnOperationIsServedUnderTheLaneOfItsStream(t *testing.T) {
	b := newBackend()
	block, ok := allocate(t.Context(), b.path, core.Request{Bytes: 100, Stream: lease})
	if !ok || block.Bytes != 100 || len(b.served) != 1 {
		t.Fatalf("%+v, %v, served %d", block, ok, len(b.served))
	}
	o := b.served[0]
	if o.Lane != &b.lane || o.Request.Requested != 100 || o.Request.Align != core.DefaultAlign || o.Request.Tag != names.Untagged || o.Began == 0 {
		t.Errorf("the backend was handed %+v", o)
	}
	id := core.BlockID{Generation: 3, AllocStream: lease}
	var freed core.Block
	if !b.path.Deallocate(t.Context(), &id, &freed) || freed.ID != id || freed.State != core.Freed {
		t.Errorf("freed %+v", freed)
	}
	if !b.lane.TryLock() {
		t.Error("the lane stays locked")
	}
}

func TestWhatIsDeclinedChangesNothing(t *testing.T) {
	sampled := core.WithSpan(t.Context(), core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{1}})
	for name, try := range map[string]struct {
		ctx    context.Context
		req    core.Request
		unwill bool
		asked  int
	}{
		"the backend declines":    {t.Context(), core.Request{Bytes: 1, Stream: lease}, true, 1},
		"a stream without a lane": {t.Context(), core.Request{Bytes: 1, Stream: lease + 1}, false, 0},
		"no bytes":                {t.Context(), core.Request{Stream: lease}, false, 0},
		"a bad alignment":         {t.Context(), core.Request{Bytes: 1, Align: 3, Stream: lease}, false, 0},
		"a span":                  {sampled, core.Request{Bytes: 1, Stream: lease}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend()
			b.willing = !try.unwill
			req := try.req
			block := core.Block{Bytes: 42}
			if b.path.Allocate(try.ctx, &req, &block) || req != try.req || block.Bytes != 42 || len(b.served) != try.asked {
				t.Errorf("served %d, request %+v, block %+v", len(b.served), req, block)
			}
			id := core.BlockID{Generation: 3, AllocStream: try.req.Stream}
			free := try.unwill || try.req.Stream != lease || try.ctx == sampled
			if ok := b.path.Deallocate(try.ctx, &id, &block); ok == free {
				t.Errorf("the free was served: %v", ok)
			}
			if !b.lane.TryLock() {
				t.Error("the lane stays locked")
			}
		})
	}
}

// lacking declines until it has been prepared often enough.
type lacking struct {
	passing
	left, prepared int
	helps          bool
	free           bool // the lane was, each time
}

func (f *lacking) declines(o *quick.Op) bool {
	if f.left > 0 {
		o.Lacks = f
	}
	return f.left > 0
}

func (f *lacking) Allocate(o *quick.Op) bool { return !f.declines(o) && f.passing.Allocate(o) }

func (f *lacking) Deallocate(o *quick.Op) bool { return !f.declines(o) && f.passing.Deallocate(o) }

func (f *lacking) Prepare(l *quick.Lane) bool {
	if f.free = l.TryLock(); f.free {
		l.Unlock()
	}
	f.left--
	f.prepared++
	return f.helps
}

// What a layer lacks it gets with the lane unlocked, and the same operation is tried again, not for ever.
func TestWhatLacksIsPreparedAndTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		lacks, prepared int
		helps, served   bool
	}{
		"nothing lacks":             {0, 0, true, true},
		"once":                      {1, 1, true, true},
		"more than once":            {3, 3, true, true},
		"always":                    {100, 3, true, false},
		"preparing helps it nought": {1, 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend()
			form := &lacking{passing: passing{b.path}, free: true, helps: c.helps}
			l := &layer{Resource: b}
			l.path = b.path.Extend(l, form)
			try := func(what string, serve func() bool) {
				form.left, form.prepared = c.lacks, 0
				if got := serve(); got != c.served || form.prepared != c.prepared || !form.free {
					t.Errorf("%s: served %t, prepared %d times, each without the lock: %t", what, got, form.prepared, form.free)
				}
			}
			try("an allocation", func() bool {
				block, ok := allocate(t.Context(), l.path, core.Request{Bytes: 9, Stream: lease})
				return ok && block.Bytes == 9
			})
			try("a free", func() bool {
				id, freed := core.BlockID{Generation: 3, AllocStream: lease}, core.Block{}
				return l.path.Deallocate(t.Context(), &id, &freed)
			})
			if want := map[bool]int{true: 2}[c.served]; len(b.served) != want || !b.lane.TryLock() {
				t.Errorf("the backend was asked %d times", len(b.served))
			}
		})
	}
}

func TestOnlyTheOutermostLayerBegins(t *testing.T) {
	b := newBackend()
	inner := newLayer(b)
	outer := newLayer(inner)
	req := core.Request{Bytes: 1, Stream: lease}
	for name, p := range map[string]*quick.Path{"backend": b.path, "inner layer": inner.path} {
		if _, ok := allocate(t.Context(), p, req); ok || len(b.served) != 0 {
			t.Errorf("the %s begins the path", name)
		}
	}
	if _, ok := allocate(t.Context(), outer.path, req); !ok || len(b.served) != 1 {
		t.Errorf("served by the outermost layer: %v, %d", ok, len(b.served))
	}
}

func TestWithoutAPathNothingIsQuick(t *testing.T) {
	var none *quick.Path
	stranger := struct{ core.Resource }{newBackend()}
	if p := quick.Of(stranger); p != nil {
		t.Errorf("a decorator without a path has %v", p)
	}
	l := newLayer(stranger)
	if quick.Of(l) != nil || none.Extend(l, passing{}) != nil || none.Lane(lease) != nil {
		t.Error("something is made of no path")
	}
	id, block := core.BlockID{AllocStream: lease}, core.Block{}
	if _, ok := allocate(t.Context(), none, core.Request{Bytes: 1, Stream: lease}); ok || none.Deallocate(t.Context(), &id, &block) {
		t.Error("no path serves")
	}
}

// auditing embeds a layer that has a path, which so is promoted, and overrides a method of it.
type auditing struct {
	*logging.Resource
	allocations int
}

func (a *auditing) Allocate(ctx context.Context, req core.Request) (core.Block, error) {
	a.allocations++
	return a.Resource.Allocate(ctx, req)
}

// The layers above must not pass it by, though it has a method QuickPath.
func TestADecoratorThatEmbedsALayerIsNotTakenForIt(t *testing.T) {
	b := newBackend()
	log, err := logging.New(b, logging.Config{Sinks: []logging.Sink{logging.NewRing(64)}}) // room for two streams
	must.Do(t, err)
	if quick.Of(log) == nil {
		t.Fatal("the log has no path")
	}
	a := &auditing{Resource: log}
	if a.QuickPath() == nil || quick.Of(a) != nil {
		t.Errorf("the path of the decorator: promoted %v, its own %v", a.QuickPath(), quick.Of(a))
	}
	top := newLayer(a)
	if quick.Of(top) != nil {
		t.Fatal("the layer above it has a path")
	}
	for range 2 {
		must.Get(top.Allocate(t.Context(), core.Request{Bytes: 64, Stream: lease}))(t)
	}
	if a.allocations != 2 || len(b.served) != 2 {
		t.Errorf("the decorator saw %d allocations, and beneath it the quick path served %d", a.allocations, len(b.served))
	}
}

// Who has a path does by itself what a listener would; others hear.
func TestALayerWithAPathHearsOnlyOfWhatItDidNotServe(t *testing.T) {
	b := newBackend()
	var served, other []core.Generation
	b.Subscribe(path.Listener{OnPath: true, Hear: func(rec *path.Record, b core.Block) { served = append(served, b.ID.Generation) }})
	b.Subscribe(listeners.Func(func(b core.Block) { other = append(other, b.ID.Generation) }))
	b.heard.Released(nil, core.Block{ID: core.BlockID{Generation: 1}})
	b.heard.ReleasedQuickly(core.Block{ID: core.BlockID{Generation: 2}})
	if len(served) != 1 || served[0] != 1 || len(other) != 2 {
		t.Errorf("the layer heard of %v, the other of %v", served, other)
	}
}

func TestPartsOfALaneAreTheLayers(t *testing.T) {
	b := newBackend()
	l := newLayer(newLayer(b))
	first, second := b.path.NewPart(), l.path.NewPart()
	if first == second || b.lane.Part(second) != nil {
		t.Fatalf("parts %d and %d", first, second)
	}
	b.lane.Lock()
	b.lane.SetPart(second, "mine")
	b.lane.Unlock()
	if b.lane.Part(first) != nil || b.lane.Part(second) != "mine" {
		t.Errorf("%v, %v", b.lane.Part(first), b.lane.Part(second))
	}
}

// A stack may have more layers than a lane has parts: then the path ends somewhere, and all works.
func TestMoreLayersThanPartsAreServed(t *testing.T) {
	b := newBackend()
	var top core.Resource = b
	for range 12 {
		log := must.Get(logging.New(top, logging.Config{Sinks: []logging.Sink{logging.NewRing(64)}}))(t)
		top = log
	}
	if quick.Of(top) != nil {
		t.Error("the outermost of twelve layers has a path")
	}
	for range 3 {
		must.Get(top.Allocate(t.Context(), core.Request{Bytes: 64, Stream: lease}))(t)
	}
	if len(b.served) == 0 {
		t.Error("nothing was served by the path beneath")
	}
}
