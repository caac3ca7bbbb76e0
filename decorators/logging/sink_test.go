package logging

import (
	"bytes"
	"context"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

func TestEverySinkGetsEveryRecord(t *testing.T) {
	var buf bytes.Buffer
	ring, lines := NewRing(4), NewJSONSink(&buf, Queue{})
	r, err := New(coretest.NewFake(0), Config{Sinks: []Sink{ring, nil, lines}})
	if err != nil {
		t.Fatal(err)
	}
	r.Emit(context.Background(), oplog.Event{Op: oplog.OpRefusal})
	if err := lines.Close(soon(t)); err != nil {
		t.Fatal(err)
	}
	if len(ring.Snapshot()) != 1 || bytes.Count(buf.Bytes(), []byte{'\n'}) != 1 {
		t.Errorf("ring %d, lines %q", len(ring.Snapshot()), buf.String())
	}
	r.Emit(context.Background(), oplog.Event{Op: oplog.OpRefusal})
	if r.Dropped() != 1 || len(ring.Snapshot()) != 2 {
		t.Errorf("dropped %d: a closed sink must not stop the others", r.Dropped())
	}
}

func TestALayerWithoutASinkLogsNothing(t *testing.T) {
	base := coretest.NewFake(0)
	for _, sinks := range [][]Sink{nil, {nil}} {
		r, err := New(base, Config{Sinks: sinks})
		if err != nil || r.ops != 0 || r.String() != "logging(fake:0)" {
			t.Errorf("%v: got %v, %v", sinks, r, err)
		}
	}
}

func TestNewRefusesWhatItCannotUse(t *testing.T) {
	expect.ErrorOf(New(nil, Config{}))(t, core.ErrInvalidRequest, "no upstream")
	expect.ErrorOf(New(coretest.NewFake(0), Config{Level: 7}))(t, core.ErrInvalidRequest, "unknown level")
	for level, want := range map[Level]string{Operations: "operations", Uses: "uses", 7: "level(7)"} {
		if got := level.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestDroppedIsTheSinks(t *testing.T) {
	s := NewJSONSink(new(bytes.Buffer), Queue{})
	r, err := New(coretest.NewFake(0), Config{Sinks: []Sink{s, NewRing(1)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(soon(t)); err != nil {
		t.Fatal(err)
	}
	if err := r.ReapPending(ctx); err != nil || r.Dropped() != 1 {
		t.Errorf("dropped %d, %v", r.Dropped(), err)
	}
}
