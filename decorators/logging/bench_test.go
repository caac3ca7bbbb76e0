package logging_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// noop is the least a resource can do, so that what is measured is the layer.
type noop struct {
	core.Unsupported
	block core.Block
}

func newNoop() *noop {
	return &noop{block: core.Block{
		ID:        core.BlockID{Ptr: 0x7f0000000000, Generation: 1},
		Requested: 64, Bytes: 256, Align: core.DefaultAlign, Tag: "bench", State: core.Live,
	}}
}

func (n *noop) String() string          { return "noop" }
func (n *noop) Ordinal() int            { return 0 }
func (n *noop) Features() core.Features { return core.UseTracking }
func (n *noop) Allocate(context.Context, core.Request) (core.Block, error) {
	return n.block, nil
}
func (n *noop) Deallocate(context.Context, core.BlockID) (core.Block, error) {
	return n.block, nil
}

func (n *noop) PrepareUse(_ context.Context, r core.UseRequest) (core.Ticket, error) {
	in, err := core.OpenIntent(n, &r)
	if err != nil {
		return core.Ticket{}, err
	}
	return in.Ticket(n), nil
}

func (n *noop) FinishUse(_ context.Context, t core.Ticket) error {
	in, err := t.End(n, "FinishUse")
	if err == nil {
		in.Recycle()
	}
	return err
}
func (n *noop) ReapPending(context.Context) error       { return nil }
func (n *noop) Drain(context.Context) error             { return nil }
func (n *noop) State(core.BlockID) core.BlockState      { return core.Live }
func (n *noop) Stats() core.Stats                       { return core.Stats{} }
func (n *noop) FreedOn(core.StreamID) core.FreeCounters { return core.FreeCounters{} }
func (n *noop) Subscribe(core.Listener)                 {}
func (n *noop) Unwrap() core.Resource                   { return nil }

// pair is one allocation and its free.
func pair(b testing.TB, r core.Resource) {
	block := must.Get(r.Allocate(context.Background(), core.Request{Bytes: 64, Tag: "bench"}))(b)
	must.Get(r.Deallocate(context.Background(), block.ID))(b)
}

func layered(b testing.TB, level logging.Level, sinks ...logging.Sink) core.Resource {
	return must.Get(logging.New(newNoop(), logging.Config{Level: level, Sinks: sinks}))(b)
}

var (
	clockRead monotime.Instant
	elapsed   time.Duration
)

// BenchmarkPair measures an allocation and its free. clocks is the two clock
// reads of each operation alone: ring less bare less clocks is what the log
// itself costs.
func BenchmarkPair(b *testing.B) {
	run := func(name string, r core.Resource) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				pair(b, r)
			}
		})
	}
	run("bare", newNoop())
	b.Run("clocks", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for range 2 {
				clockRead = monotime.Now()
				elapsed = monotime.Now().Since(clockRead)
			}
		}
	})
	run("forward", layered(b, logging.Operations))
	run("ring", layered(b, logging.Operations, logging.NewRing(0)))
	b.Run("json", func(b *testing.B) {
		sink := logging.NewJSONSink(io.Discard, logging.Queue{})
		r := layered(b, logging.Operations, sink)
		b.ReportAllocs()
		for b.Loop() {
			pair(b, r)
		}
		if err := sink.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
		// A loop of nothing but logging outruns any writer.
		b.ReportMetric(float64(sink.Dropped())/float64(b.N), "dropped/op")
	})
}

// BenchmarkJSON measures what one record costs its writer, end to end.
func BenchmarkJSON(b *testing.B) {
	record := logging.Record{Event: oplog.Event{Op: oplog.OpAllocate, Layer: "logging", Time: time.Now(), Tag: "bench", Block: newNoop().block.ID}}
	sink := logging.NewJSONSink(io.Discard, logging.Queue{Size: 1 << 16})
	for b.Loop() {
		record.Seq++
		sink.Put(record)
		if record.Seq%(1<<15) == 0 {
			if err := sink.Flush(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := sink.Close(context.Background()); err != nil || sink.Dropped() != 0 {
		b.Fatalf("close: %v, dropped %d", err, sink.Dropped())
	}
}

// BenchmarkUse measures a launch of one block, with and without its records.
func BenchmarkUse(b *testing.B) {
	for _, level := range []logging.Level{logging.Operations, logging.Uses} {
		b.Run(level.String(), func(b *testing.B) {
			r := layered(b, level, logging.NewRing(0))
			uses := []core.Use{{Block: newNoop().block.ID, Access: core.Read}}
			b.ReportAllocs()
			for b.Loop() {
				launch(b, r, uses)
			}
		})
	}
}

func launch(b testing.TB, r core.Resource, uses []core.Use) {
	t := must.Get(r.PrepareUse(context.Background(), core.UseRequest{Stream: 1, Launch: "sort", Uses: uses}))(b)
	must.Do(b, r.FinishUse(context.Background(), t))
}

// BenchmarkRing measures one entry, from one goroutine and from several.
func BenchmarkRing(b *testing.B) {
	record := logging.Record{Event: oplog.Event{Op: oplog.OpAllocate, Time: time.Now(), Tag: "bench"}, Seq: 1}
	b.Run("single", func(b *testing.B) {
		ring := logging.NewRing(0)
		b.ReportAllocs()
		for b.Loop() {
			ring.Put(record)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		ring := logging.NewRing(0)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				ring.Put(record)
			}
		})
	})
}
