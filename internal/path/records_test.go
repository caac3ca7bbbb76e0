package path_test

import (
	"context"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

type part struct{ of core.Generation }

// layer has a part in the records of its segment, and nothing else.
type layer struct {
	core.Resource
	path    *path.Path
	records *path.Records
	part    path.Part[part]
	heard   []*path.Record
}

func newLayer(up core.Resource) *layer {
	l := &layer{Resource: up}
	below := path.Over(up, true)
	l.path = below.Extend(l, entering{layer: l}, nil)
	l.records, l.part = path.Join[part](below, up)
	l.records.Subscribe(up, path.Listener{Hear: func(rec *path.Record, b core.Block) {
		if p := l.part.Of(rec); p != nil && p.of == b.ID.Generation {
			p.of = 0
		}
		l.heard = append(l.heard, rec)
	}})
	return l
}

func (l *layer) SharedRecords() (core.Resource, *path.Records) { return l, l.records }

func (l *layer) Subscribe(to core.Listener) { l.records.Subscribe(l.Resource, to) }

func (l *layer) Path() *path.Path { return l.path }

func (l *layer) Allocate(ctx context.Context, req core.Request) (b core.Block, err error) {
	err = l.path.Allocate(ctx, nil, &req, &b)
	return b, err
}

func (l *layer) Deallocate(ctx context.Context, id core.BlockID) (b core.Block, err error) {
	err = l.path.Deallocate(ctx, nil, &id, &b)
	return b, err
}

// entering enters a block.
type entering struct {
	path.Simple
	*layer
}

func (e entering) Allocate(o *path.Op) bool {
	ok := e.path.Below.Layer.Allocate(o)
	if ok {
		e.part.Of(e.records.Served(o)).of = o.Block.ID.Generation
	}
	return ok
}

func (e entering) Deallocate(o *path.Op) bool { return e.path.Below.Layer.Deallocate(o) }

func allocate(t *testing.T, r core.Resource) core.Block {
	t.Helper()
	return must.Get(r.Allocate(t.Context(), core.Request{Bytes: 64, Stream: 3}))(t)
}

// stranger is somebody's own decorator.
type stranger struct{ core.Resource }

// promoting embeds a layer, so that it has all its methods.
type promoting struct{ *layer }

func TestLayersOverSomebodysOwnShareOneTable(t *testing.T) {
	fake := coretest.NewFake(0)
	lower := newLayer(fake)
	upper := newLayer(lower)
	b := allocate(t, upper)
	rec := lower.records.Load(b.ID)
	if rec == nil || upper.records.Find(b.ID) != rec || lower.part.Of(rec).of != b.ID.Generation || upper.part.Of(rec).of != b.ID.Generation {
		t.Fatalf("the record is %v, above it is %v", rec, upper.records.Find(b.ID))
	}
	elsewhere := b.ID
	elsewhere.AllocStream = 4 // a caller made it up
	if lower.records.Find(elsewhere) != rec {
		t.Error("the record is not found without its stream")
	}
	n := 0
	for g, each := range lower.records.Each {
		if n++; g != b.ID.Generation || each != rec {
			t.Errorf("listed %v", g)
		}
	}
	must.Get(upper.Deallocate(t.Context(), b.ID))(t)
	must.Do(t, fake.Drain(t.Context()))
	if n != 1 || len(lower.heard) != 1 || len(upper.heard) != 1 || lower.heard[0] != rec || upper.heard[0] != rec || lower.records.Find(b.ID) != nil {
		t.Errorf("%d listed, heard of %v and %v", n, lower.heard, upper.heard)
	}
	if lower.part.Of(rec).of != 0 || upper.part.Of(rec).of != 0 {
		t.Error("a part stays open")
	}
}

func TestADecoratorOfSomebodysOwnSplitsTheRecords(t *testing.T) {
	fake := coretest.NewFake(0)
	lower := newLayer(fake)
	for name, between := range map[string]core.Resource{"one that knows nothing": stranger{lower}, "one that embeds a layer": promoting{lower}} {
		upper := newLayer(between)
		b := allocate(t, upper)
		if upper.records == lower.records || upper.records.Load(b.ID) == lower.records.Load(b.ID) || lower.part.Of(lower.records.Load(b.ID)).of != b.ID.Generation {
			t.Errorf("%s: the layers share a record", name)
		}
		must.Get(upper.Deallocate(t.Context(), b.ID))(t)
		must.Do(t, fake.Drain(t.Context()))
		if len(upper.heard) != 1 || upper.heard[0] == nil || upper.records.Find(b.ID) != nil {
			t.Errorf("%s: heard of %v", name, upper.heard)
		}
	}
}

// What was allocated around a layer, or before there was one, is told of without a record or a part.
func TestBlocksAroundALayerHaveNoPartOfIt(t *testing.T) {
	fake := coretest.NewFake(0)
	lower := newLayer(fake)
	around, below := allocate(t, fake), allocate(t, lower)
	old := lower.records.Load(below.ID)
	upper := newLayer(lower)
	if upper.part.Of(old) != nil || upper.part.Of(nil) != nil {
		t.Error("a record that is older than the layer has a part for it")
	}
	for _, b := range []core.Block{around, below} {
		must.Get(upper.Deallocate(t.Context(), b.ID))(t)
	}
	must.Do(t, fake.Drain(t.Context()))
	if len(upper.heard) != 2 || upper.heard[0] != nil || upper.heard[1] != old {
		t.Errorf("heard of %v", upper.heard)
	}
	for range 20 { // the records that are used again are not of the older kind
		b := allocate(t, upper)
		must.Get(upper.Deallocate(t.Context(), b.ID))(t)
		must.Do(t, fake.Drain(t.Context()))
	}
}

// A table has room for some layers; where there are more, the next one begins another.
func TestHoweverManyLayersThereAreEachHasItsPart(t *testing.T) {
	fake := coretest.NewFake(0)
	layers := []*layer{newLayer(fake)}
	for range 9 {
		layers = append(layers, newLayer(layers[len(layers)-1]))
	}
	for range 20 {
		b := allocate(t, layers[9])
		for i, l := range layers {
			if p := l.part.Of(l.records.Load(b.ID)); p == nil || p.of != b.ID.Generation {
				t.Fatalf("layer %d has no part of %v", i, b.ID)
			}
		}
		must.Get(layers[9].Deallocate(t.Context(), b.ID))(t)
		must.Do(t, fake.Drain(t.Context()))
		for i, l := range layers {
			if l.records.Find(b.ID) != nil {
				t.Fatalf("layer %d has a record of %v, which is gone", i, b.ID)
			}
		}
	}
}
