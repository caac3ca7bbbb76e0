package cuda_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// inspect is the stream that is leased.
func (b *bench) inspect(on *cuda.Lease) readings.StreamInfo {
	b.Helper()
	for _, info := range b.Streams.Inspect() {
		if info.Lease != nil && info.Lease.ID == on.ID() {
			return info
		}
	}
	b.Fatalf("stream %v is not listed", on.ID())
	return readings.StreamInfo{}
}

func TestStreamsSayWhoHasThemAndWhatTheyAreOrderedAfter(t *testing.T) {
	b := newBench(t, capacity(4))
	x, y := b.Lease(t, "writer"), b.Lease(t, "reader")
	block := b.alloc(x, 4096)
	ticket := b.prepare(x, writes(block))
	equal(t, "open launches", b.inspect(x).OpenLaunches, 1)
	b.enqueue(x, writes(block))
	must(t, b.Runtime.FinishUse(ctx, ticket))
	b.launch(y, reads(block))
	b.sync(y)

	writer, reader := b.inspect(x), b.inspect(y)
	equal(t, "tag", writer.Lease.Tag, "writer")
	equal(t, "launches", writer.Launches, 1)
	equal(t, "open launches", writer.OpenLaunches, 0)
	equal(t, "last launch", reader.Last.Launch, "mix")
	equal(t, "waits of the writer", writer.WaitsQueued, 0)
	equal(t, "waits of the reader", reader.WaitsQueued, 1)
	if len(writer.After) != 0 || len(reader.After) != 1 || reader.After[0] != (readings.StreamPoint{Number: writer.Number, Seq: writer.Seq}) {
		t.Errorf("the writer at %d is ordered after %v, the reader after %v", writer.Seq, writer.After, reader.After)
	}

	b.free(block)
	if info := b.inspect(x); info.PendingFrees != 1 || info.PendingBytes != 4096 {
		t.Errorf("%d frees of %d bytes are pending", info.PendingFrees, info.PendingBytes)
	}
	b.drain()
	if info := b.inspect(x); info.PendingFrees != 0 || info.PendingBytes != 0 || info.Completed == 0 || info.Completed > info.Seq {
		t.Errorf("drained: %+v", info)
	}
	must(t, y.Release())
	idle := 0
	for _, info := range b.Streams.Inspect() {
		if info.Lease == nil && !info.Default {
			idle++
		}
	}
	equal(t, "streams without a lease", idle, 1)
}

// A driver that hangs must not take along who looks.
func TestStreamsAreListedWhileTheDriverHangs(t *testing.T) {
	b, slow := newSlowBench(t)
	x := b.leases(1)[0]
	block := b.alloc(x, 4096)
	arrived, release := slow.stall(t, drivertest.EventRecord, true)
	b.during(arrived, release, func() error { return b.Async.RecordUse(ctx, block.ID, x.ID()) }, func() error {
		calls := b.faults.Total()
		if info := b.inspect(x); !info.Busy || info.Seq != 0 || info.OpenLaunches != 1 {
			t.Errorf("while the driver hung: %+v", info)
		}
		if b.faults.Total() != calls {
			return errors.New("looking at streams calls the driver")
		}
		return nil
	})
	if info := b.inspect(x); info.Busy || info.Seq == 0 {
		t.Errorf("afterwards: %+v", info)
	}
	b.free(block)
	must(t, b.Runtime.Drain(ctx))
}
