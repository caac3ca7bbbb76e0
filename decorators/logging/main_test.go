package logging

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ctx    = context.Background()
	errBad = errors.New("bad")
)

// testStart is when the records of the tests start.
var testStart = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// bench is a logged fake whose records can be looked at.
type bench struct {
	t    *testing.T
	fake *coretest.Fake
	log  *Resource
	ring *Ring
	seen int
}

func newBench(t *testing.T, level Level) *bench {
	t.Helper()
	b := &bench{t: t, fake: coretest.NewFake(3), ring: NewRing(64)}
	log := must.Get(New(b.fake, Config{Level: level, Sinks: []Sink{b.ring}}))(t)
	b.log = log
	return b
}

// one returns the single record since the last call.
func (b *bench) one() oplog.Event {
	b.t.Helper()
	records := b.ring.Snapshot()[b.seen:]
	if len(records) != 1 {
		b.t.Fatalf("got %d records, want 1: %+v", len(records), records)
	}
	b.seen++
	return records[0].Event
}

// none checks that there is no record since the last call.
func (b *bench) none() {
	b.t.Helper()
	if records := b.ring.Snapshot()[b.seen:]; len(records) != 0 {
		b.t.Fatalf("got %d records, want none: %+v", len(records), records)
	}
}

// skip passes over the records so far.
func (b *bench) skip() { b.seen = len(b.ring.Snapshot()) }

func (b *bench) allocate(bytes uint64) core.Block {
	b.t.Helper()
	block := must.Get(b.log.Allocate(ctx, core.Request{Bytes: bytes, Stream: 7, Tag: "sort.keys"}))(b.t)
	return block
}

// want compares an event, but for time and layer, which it checks.
func (b *bench) want(want oplog.Event) {
	b.t.Helper()
	got := b.one()
	if got.Time.Before(processStart) || got.Duration < 0 || time.Since(got.Time) < got.Duration || got.Layer != "logging" || got.Ordinal != 3 {
		b.t.Errorf("time %v, duration %v, layer %q, ordinal %d", got.Time, got.Duration, got.Layer, got.Ordinal)
	}
	got.Time, got.Duration, got.Layer, got.Ordinal = want.Time, want.Duration, want.Layer, want.Ordinal
	if got != want {
		b.t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
