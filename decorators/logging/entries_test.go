package logging

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// kept is a sink that is no ring.
type kept struct{ records []Record }

func (k *kept) Put(r Record)              { k.records = append(k.records, r) }
func (*kept) Flush(context.Context) error { return nil }
func (*kept) Close(context.Context) error { return nil }
func (*kept) Dropped() uint64             { return 0 }

func TestARingAndAWriterTellTheSameTime(t *testing.T) {
	ring, writer := NewRing(8), &kept{}
	log := must.Get(New(coretest.NewFake(0), Config{Level: Uses, Sinks: []Sink{ring, writer}}))(t)
	before := time.Now()
	block := must.Get(log.Allocate(ctx, core.Request{Bytes: 8}))(t)
	must.Get(log.Deallocate(ctx, block.ID))(t)
	log.Emit(context.Background(), oplog.Event{Op: oplog.OpRefusal, Time: before})
	got := ring.Snapshot()
	if len(got) != len(writer.records) || len(got) < 3 {
		t.Fatalf("the ring has %d records, the writer %d", len(got), len(writer.records))
	}
	for i, r := range got {
		if r != writer.records[i] || r.Event.Time.Before(before) {
			t.Errorf("record %d: the ring has %+v, the writer %+v", i, r, writer.records[i])
		}
	}
}

// other answers with a block that is not what was asked for.
type other struct {
	core.Resource
	change func(*core.BlockID)
}

func (o other) Allocate(c context.Context, req core.Request) (core.Block, error) {
	b, err := o.Resource.Allocate(c, req)
	o.change(&b.ID)
	return b, err
}

// What a ring has in short and a writer gets whole is the same, whatever the upstream
// answers and whatever is traced.
func TestARingAndAWriterTellTheSame(t *testing.T) {
	traced := core.WithSpan(ctx, core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{2}})
	for name, c := range map[string]struct {
		ctx    context.Context
		change func(*core.BlockID)
		short  bool
	}{
		"ordinary":       {ctx, func(*core.BlockID) {}, true},
		"another stream": {ctx, func(id *core.BlockID) { id.AllocStream++ }, false},
		"another device": {ctx, func(id *core.BlockID) { id.Ordinal++ }, false},
		"traced":         {traced, func(*core.BlockID) {}, false},
	} {
		var events [2]oplog.Event
		rings := [2]*Ring{NewRing(1), NewRing(1)}
		for i, sinks := range [][]Sink{{rings[0]}, {rings[1], &kept{}}} {
			log := must.Get(New(other{coretest.NewFake(2), c.change}, Config{Sinks: sinks}))(t)
			must.Get(log.Allocate(c.ctx, core.Request{Bytes: 8, Stream: 7, Tag: "tables"}))(t)
			events[i] = rings[i].Events()[0]
		}
		events[0].Block.Generation = events[1].Block.Generation // unique in the process
		events[0].Time, events[0].Duration = events[1].Time, events[1].Duration
		if events[0].Block.Ptr = events[1].Block.Ptr; events[0] != events[1] {
			t.Errorf("%s: alone the ring has %+v, beside a writer %+v", name, events[0], events[1])
		}
		if short := rings[0].parcels[0].slots.entries[0].op != opWhole; short != c.short || rings[1].parcels[0].slots.entries[0].op != opWhole {
			t.Errorf("%s: the ring has it short: %v", name, short)
		}
	}
}
