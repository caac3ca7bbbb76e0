package logging

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
)

func TestTeeFeedsAllItsSinks(t *testing.T) {
	var buf bytes.Buffer
	ring, lines := NewRing(4), NewJSONSink(&buf, Queue{})
	s := Tee(ring, nil, None(), lines)
	s.Put(numbered(1))
	if err := s.Flush(soon(t)); err != nil {
		t.Fatal(err)
	}
	if len(ring.Snapshot()) != 1 || bytes.Count(buf.Bytes(), []byte{'\n'}) != 1 {
		t.Errorf("ring %d, lines %q", len(ring.Snapshot()), buf.String())
	}
	if err := s.Close(soon(t)); err != nil {
		t.Fatal(err)
	}
	s.Put(numbered(2))
	if s.Dropped() != 1 || len(ring.Snapshot()) != 2 {
		t.Errorf("dropped %d: a closed sink must not stop the others", s.Dropped())
	}
}

func TestTeeBuildsNothingForOneSink(t *testing.T) {
	ring := NewRing(1)
	if Tee(nil, ring) != Sink(ring) || Tee() != None() || Tee(None()) != None() {
		t.Error("there is something in between")
	}
}

func TestAStuckSinkDoesNotUseUpTheTimeOfOthers(t *testing.T) {
	g := newGate()
	var buf bytes.Buffer
	stuck, well := NewJSONSink(g, brief), NewJSONSink(&buf, brief)
	s := Tee(stuck, well)
	s.Put(numbered(1))
	<-g.entered
	s.Put(numbered(2))
	hurry, cancel := context.WithCancel(ctx)
	go func() {
		<-well.done
		cancel()
	}()
	if err := s.Close(hurry); !errors.Is(err, context.Canceled) {
		t.Errorf("close: %v", err)
	}
	if n := bytes.Count(buf.Bytes(), []byte{'\n'}); n != 2 || well.Dropped() != 0 {
		t.Errorf("the other sink wrote %d", n)
	}
	close(g.open)
	<-stuck.done
}

func TestNoneTakesAnything(t *testing.T) {
	s := None()
	s.Put(numbered(1))
	if s.Flush(ctx) != nil || s.Close(ctx) != nil || s.Dropped() != 0 {
		t.Error("none is not nothing")
	}
}

func TestALayerWithNothingToDoIsNotBuilt(t *testing.T) {
	base := coretest.NewFake(0)
	for _, sinks := range [][]Sink{nil, {nil}, {None(), Tee()}} {
		r, err := core.Chain(base, Layer(Config{Sinks: sinks}))
		if err != nil || r != core.Resource(base) {
			t.Errorf("%v: got %v, %v", sinks, r, err)
		}
	}
	r, err := core.Chain(base, Layer(Config{Sinks: []Sink{NewRing(1)}}))
	if err != nil || r.String() != "logging(fake:0)" {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestNewRefusesWhatItCannotUse(t *testing.T) {
	if _, err := New(nil, Config{}); !errors.Is(err, core.ErrInvalidRequest) {
		t.Errorf("no upstream: %v", err)
	}
	if _, err := New(coretest.NewFake(0), Config{Level: 7}); !errors.Is(err, core.ErrInvalidRequest) {
		t.Errorf("unknown level: %v", err)
	}
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
