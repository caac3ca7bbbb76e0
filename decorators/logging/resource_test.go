package logging

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestAllocationIsLoggedWithItsBlock(t *testing.T) {
	b := newBench(t, Operations)
	block := must.Get(b.log.Allocate(ctx, core.Request{Bytes: 96, Requested: 64, Stream: 7, Tag: "sort.keys"}))(t)
	b.want(oplog.Event{Op: oplog.OpAllocate, Stream: 7, Block: block.ID, Tag: "sort.keys", Requested: 64, Bytes: 96})
}

func TestFailedAllocationIsLoggedWithWhatWasAskedFor(t *testing.T) {
	b := newBench(t, Operations)
	b.fake.FailNext("Allocate", errBad, errBad)
	if _, err := b.log.Allocate(ctx, core.Request{Bytes: 96, Requested: 64, Stream: 7, Tag: "sort.keys"}); !errors.Is(err, errBad) {
		t.Fatalf("got %v", err)
	}
	b.want(oplog.Event{Op: oplog.OpAllocate, Stream: 7, Tag: "sort.keys", Requested: 64, Bytes: 96, Err: errBad})

	if _, err := b.log.Allocate(ctx, core.Request{Bytes: 96}); !errors.Is(err, errBad) {
		t.Fatalf("got %v", err)
	}
	b.want(oplog.Event{Op: oplog.OpAllocate, Tag: names.Untagged, Requested: 96, Bytes: 96, Err: errBad})
}

func TestDeallocationIsLoggedWithItsBlock(t *testing.T) {
	b := newBench(t, Operations)
	block := b.allocate(64)
	b.skip()
	must.Get(b.log.Deallocate(ctx, block.ID))(t)
	b.want(oplog.Event{Op: oplog.OpDeallocate, Stream: 7, Block: block.ID, Tag: "sort.keys", Requested: 64, Bytes: 64})
}

func TestFailedDeallocationIsLoggedWithItsHandle(t *testing.T) {
	b := newBench(t, Operations)
	block := b.allocate(64)
	b.skip()
	b.fake.FailNext("Deallocate", errBad)
	if _, err := b.log.Deallocate(ctx, block.ID); !errors.Is(err, errBad) {
		t.Fatalf("got %v", err)
	}
	b.want(oplog.Event{Op: oplog.OpDeallocate, Stream: 7, Block: block.ID, Err: errBad})
}

func TestReapAndDrainAreLogged(t *testing.T) {
	b := newBench(t, Operations)
	for _, c := range []struct {
		method string
		op     oplog.Op
		call   func() error
	}{
		{"ReapPending", oplog.OpReap, func() error { return b.log.ReapPending(ctx) }},
		{"Drain", oplog.OpDrain, func() error { return b.log.Drain(ctx) }},
	} {
		must.Do(t, c.call())
		b.want(oplog.Event{Op: c.op})
		b.fake.FailNext(c.method, errBad)
		if err := c.call(); !errors.Is(err, errBad) {
			t.Fatalf("%s: got %v", c.method, err)
		}
		b.want(oplog.Event{Op: c.op, Err: errBad})
	}
}

func TestReservationsAreLogged(t *testing.T) {
	b := newBench(t, Operations)
	_, err := b.log.Reserve(ctx, 512, "build")
	if err == nil {
		t.Fatal("the fake has no budget")
	}
	got := b.one()
	if got.Op != oplog.OpReserve || got.Tag != "build" || got.Requested != 512 || got.Bytes != 512 || !errors.Is(got.Err, err) {
		t.Errorf("got %+v", got)
	}
	err = b.log.ReleaseClaim(ctx, 9)
	if got := b.one(); got.Op != oplog.OpReleaseClaim || err == nil || !errors.Is(got.Err, err) {
		t.Errorf("got %+v for %v", got, err)
	}
}

func TestEventsOfOtherLayersAreLoggedAsTheyAre(t *testing.T) {
	b := newBench(t, Operations)
	refusal := oplog.Event{Op: oplog.OpRefusal, Layer: "budget", Time: testStart, Duration: 5, Ordinal: 3, Stream: 2, Tag: "join",
		Requested: 10, Bytes: 12, Relieved: true, Err: &core.OutOfBudgetError{Requested: 10, Limit: 5}}
	b.log.Emit(context.Background(), refusal)
	if got := b.one(); got != refusal {
		t.Errorf("got %+v", got)
	}
	b.log.Emit(context.Background(), oplog.Event{Op: oplog.OpFinish})
	b.none()
}

func TestNumbersOrderAFreeBeforeTheNextUseOfItsAddress(t *testing.T) {
	b := newBench(t, Operations)
	b.log = must.Get(New(&reuser{Resource: b.fake, during: func() { b.allocate(64) }}, Config{Sinks: []Sink{b.ring}}))(t)
	b.log.sequence = new(sequence)
	block := b.allocate(64)
	must.Get(b.log.Deallocate(ctx, block.ID))(t)
	var ops []oplog.Op
	for i, r := range b.ring.Snapshot() {
		if r.Seq != uint64(i+1) {
			t.Errorf("record %d has number %d", i, r.Seq)
		}
		ops = append(ops, r.Event.Op)
	}
	want := []oplog.Op{oplog.OpAllocate, oplog.OpDeallocate, oplog.OpAllocate}
	if len(ops) != 3 || ops[0] != want[0] || ops[1] != want[1] || ops[2] != want[2] {
		t.Errorf("got %v, want %v", ops, want)
	}
}

// reuser lets another goroutine's call happen while a free is under way, as
// a driver does that has queued the free and not yet returned.
type reuser struct {
	core.Resource
	during func()
}

func (r *reuser) Deallocate(c context.Context, id core.BlockID) (core.Block, error) {
	b, err := r.Resource.Deallocate(c, id)
	r.during()
	return b, err
}

// What the device did is logged at the level Uses, as a copy, and is no record of a ring.
func TestWhatTheDeviceDidIsLogged(t *testing.T) {
	for level, want := range map[Level]int{Operations: 0, Uses: 1} {
		ring, sink := NewRing(8), &heldSink{}
		log := must.Get(New(newBench(t, level).fake, Config{Level: level, Sinks: []Sink{ring, sink}}))(t)
		w := oplog.DeviceWork{Launch: 7, Name: "merge", Stream: 3, Waits: []oplog.DeviceWait{{Launch: "sort", Held: 5}}}
		log.Done(&w)
		w.Waits[0].Launch = "used again"
		log.Lost(1)
		if ring.Total() != 0 || len(sink.records) != want {
			t.Fatalf("%v: the ring has %d records, the sink %d", level, ring.Total(), len(sink.records))
		}
		for _, r := range sink.records {
			if e := r.Event; r.Seq == 0 || e.Op != oplog.OpDevice || e.LaunchID != 7 || e.Device.Name != "merge" || e.Device.Waits[0].Launch != "sort" {
				t.Errorf("%+v of %+v", e, e.Device)
			}
		}
	}
}

// heldSink keeps what it is given.
type heldSink struct{ records []Record }

func (s *heldSink) Put(r Record)              { s.records = append(s.records, r) }
func (*heldSink) Dropped() uint64             { return 0 }
func (*heldSink) Flush(context.Context) error { return nil }
func (*heldSink) Close(context.Context) error { return nil }
