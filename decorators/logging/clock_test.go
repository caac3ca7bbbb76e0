package logging

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
)

// readingOf is a reading of both clocks, ago.
func readingOf(ago time.Duration) *time.Time {
	t := time.Now().Add(-ago)
	return &t
}

func TestAStepOfTheTimeOfDayShowsASecondLater(t *testing.T) {
	defer lastWall.Store(nil)
	recent := readingOf(time.Millisecond)
	lastWall.Store(recent)
	if at := now(); at.base != recent && time.Since(*recent) < time.Second || at.base == recent && at.elapsed < time.Millisecond {
		t.Errorf("the time of day was read again after %v", at.elapsed)
	}
	old := readingOf(time.Minute)
	lastWall.Store(old)
	at := now()
	if at.base == old || lastWall.Load() != at.base || at.elapsed != 0 {
		t.Errorf("the time of day is carried on from %v ago", at.elapsed)
	}
	if d := since(moment{base: old}); d < time.Minute || d > 2*time.Minute {
		t.Errorf("an operation of a minute took %v", d)
	}
}

// kept is a sink that is no ring.
type kept struct{ records []Record }

func (k *kept) Put(r Record)              { k.records = append(k.records, r) }
func (*kept) Flush(context.Context) error { return nil }
func (*kept) Close(context.Context) error { return nil }
func (*kept) Dropped() uint64             { return 0 }

func TestARingAndAWriterTellTheSameTime(t *testing.T) {
	ring, writer := NewRing(8), &kept{}
	log, err := New(coretest.NewFake(0), Config{Level: Uses, Sinks: []Sink{ring, writer}})
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	block, err := log.Allocate(ctx, core.Request{Bytes: 8})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Deallocate(ctx, block.ID); err != nil {
		t.Fatal(err)
	}
	log.Emit(context.Background(), core.Event{Op: core.OpRefusal, Time: before})
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
