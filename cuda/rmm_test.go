package cuda_test

import (
	"bytes"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// The scenarios of this file are those of RMM's tests of its stream pool and
// asynchronous resource, with their numbers. The shared ones are cases of the
// conformance suite.

// A hundred bytes are set to 0xCC on one stream, copied and read on another.
func TestBytesSetOnOneStreamAreReadOnAnother(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	if s[0].ID() == s[1].ID() || s[0].Handle() == s[1].Handle() {
		t.Fatal("successive streams are the same")
	}
	first, err := cuda.Alloc[byte](ctx, b.Memory, 100, options(s[0]))
	must(t, err)
	second, err := cuda.Alloc[byte](ctx, b.Memory, 100, options(s[1]))
	must(t, err)
	must(t, cuda.Memset(ctx, first, s[0].ID(), 0xCC))
	must(t, cuda.CopyOnDevice(ctx, second, first, s[1].ID()))
	got, err := cuda.Download(ctx, second, s[1].ID())
	must(t, err)
	if !bytes.Equal(got, bytes.Repeat([]byte{0xCC}, 100)) {
		t.Errorf("got %x", got)
	}
	must(t, first.Free(ctx))
	must(t, second.Free(ctx))
}

// RMM issue 2490: memory freed on a stream with work queued was merged, and
// handed to another stream that was not ordered behind that work.
func TestMemoryOfAStalledStreamIsNotHandedOut(t *testing.T) {
	for _, schedule := range []sim.Schedule{sim.FreeRunning(), sim.Seeded(1), sim.Seeded(2), sim.Seeded(3)} {
		b := newBench(t, withSchedule(schedule))
		s := b.leases(3)
		x, err := cuda.Alloc[byte](ctx, b.Memory, 1<<20, options(s[0]))
		must(t, err)
		release := b.hold(s[0])
		must(t, cuda.Memset(ctx, x, s[0].ID(), 0xAA))
		must(t, x.Free(ctx))
		if _, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 1 << 50, Stream: s[1].ID()}); err == nil {
			t.Fatal("a pebibyte was allocated")
		}
		heir, err := cuda.Alloc[byte](ctx, b.Memory, 1<<20, options(s[2]))
		must(t, err)
		must(t, cuda.Memset(ctx, heir, s[2].ID(), 0xCC))
		release()
		b.sync(s[0], s[2])
		got, err := cuda.Download(ctx, heir, s[2].ID())
		must(t, err)
		if n := bytes.Count(got, []byte{0xCC}); n != 1<<20 {
			t.Errorf("%v: %d bytes are not the heir's", schedule, 1<<20-n)
		}
		must(t, heir.Free(ctx))
	}
}

// Two resources on one device have pools of their own, and the release
// threshold keeps everything unless told otherwise.
func TestResourcesHavePoolsOfTheirOwn(t *testing.T) {
	b := newBench(t)
	cfg := cuda.AsyncConfig{ReleaseThreshold: 1000, ReapInterval: -1}
	expect.ErrorOf(cuda.NewAsyncResource(b.Driver, b.Streams, cfg))(t, core.ErrInvalidRequest, "two resources on one stream pool")
	streams, err := cuda.NewStreamPool(b.Driver, cuda.StreamPoolConfig{})
	must(t, err)
	other, err := cuda.NewAsyncResource(b.Driver, streams, cfg)
	must(t, err)
	l := b.leases(1)[0]
	mine := b.alloc(l, 100)
	pool, err := other.PoolStats()
	must(t, err)
	equal(t, "bytes used of the other pool", pool.Used, 0)
	if _, err := other.Deallocate(ctx, mine.ID); err == nil {
		t.Error("a block was freed through another resource")
	}
	b.free(mine)
	b.drain()
	must(t, b.Driver.StreamSynchronize(l.Handle()))
	pool, err = b.Async.PoolStats()
	must(t, err)
	if pool.Reserved == 0 {
		t.Error("the pool gave its memory back at a synchronisation")
	}
	must(t, other.Close(ctx))
	must(t, streams.Close(ctx))
}
