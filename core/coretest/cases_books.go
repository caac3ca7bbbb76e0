package coretest

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

var bookCases = []testCase{
	{name: "statistics are exact in requested bytes", room: 64 * mib, run: (*trial).exactStatistics},
	{name: "the free counters are exact and never run back", run: (*trial).freeCounters},
	{name: "a release is told exactly once, whichever goroutine reaps", run: (*trial).concurrentReapers},
	{name: "drain leaves nothing outstanding", run: (*trial).drainIsAccurate},
}

// exactStatistics runs a random program and keeps the books itself.
func (t *trial) exactStatistics() {
	rng := fixedSeed()
	stream := t.Streams(t)
	m := model{start: t.before, peak: t.before.Live.Requested}
	var live []core.Block
	for range 300 {
		switch n := rng.IntN(10); {
		case n < 5 || len(live) == 0:
			b := t.alloc(1+rng.Uint64N(64*kib), stream)
			live = append(live, b)
			m.allocated(b)
		case n < 8:
			i := rng.IntN(len(live))
			m.freed(live[i])
			t.free(live[i])
			live = append(live[:i], live[i+1:]...)
		case n == 8:
			_, err := t.allocate(core.Request{Bytes: pib, Stream: stream})
			t.check(err != nil, "a pebibyte was allocated")
		default:
			t.succeed(t.launch(stream, accesses[rng.IntN(3)], live[rng.IntN(len(live))], func() error { return nil }), "launch")
		}
		m.compare(t, t.Resource.Stats())
	}
	for _, b := range live {
		m.freed(b)
		t.free(b)
	}
	t.drain()
	m.compare(t, t.Resource.Stats())
	t.check(t.Resource.Stats().Pending == t.before.Pending, "after drain %+v is pending", t.Resource.Stats().Pending)
}

// model is what the counters must say.
type model struct {
	start                     core.Stats
	requested, blocks, peak   uint64
	allocations, deallocation uint64
	allocatedBytes            uint64
}

func (m *model) allocated(b core.Block) {
	m.requested += b.Requested
	m.blocks++
	m.allocations++
	m.allocatedBytes += b.Requested
	m.peak = max(m.peak, m.start.Live.Requested+m.requested)
}

func (m *model) freed(b core.Block) {
	m.requested -= b.Requested
	m.blocks--
	m.deallocation++
}

func (m *model) compare(t *trial, s core.Stats) {
	t.Helper()
	got := fmt.Sprint(s.Live.Requested, s.Live.Blocks, s.PeakRequested, s.Allocations, s.Deallocations)
	want := fmt.Sprint(m.start.Live.Requested+m.requested, m.start.Live.Blocks+m.blocks, max(m.peak, m.start.PeakRequested),
		m.start.Allocations+m.allocations, m.start.Deallocations+m.deallocation)
	t.check(got == want, "live bytes, live blocks, peak, allocations, deallocations: got %s, want %s", got, want)
	t.check(s.AllocatedBytes-m.start.AllocatedBytes >= m.allocatedBytes, "%d bytes were allocated in all, and %d are counted", m.allocatedBytes, s.AllocatedBytes-m.start.AllocatedBytes)
	t.check(s.Live.Bytes >= s.Live.Requested, "live is %d bytes for %d requested", s.Live.Bytes, s.Live.Requested)
	t.check(s.PeakBytes >= s.Live.Bytes, "the peak of %d is below what is live, %d", s.PeakBytes, s.Live.Bytes)
	t.check(s.PeakOutstanding >= s.Outstanding().Bytes, "the peak of %d is below what is held, %d", s.PeakOutstanding, s.Outstanding().Bytes)
}

// freeCounters compares the backend's own count of freed bytes with its notices;
// layers above it may have asked for more than the suite did.
func (t *trial) freeCounters() {
	stream, base := t.Streams(t), core.Base(t.Resource)
	told := &toldBytes{stream: stream}
	base.Subscribe(told)
	start := t.Resource.FreedOn(stream)
	last, total := start, uint64(0)
	for i := range uint64(20) {
		b := t.alloc(1000*(i+1), stream)
		total += b.Requested
		t.free(b)
		now := t.Resource.FreedOn(stream)
		t.check(now.Queued >= last.Queued && now.Completed >= last.Completed, "the free counters ran back from %+v to %+v", last, now)
		t.check(now.Completed <= now.Queued, "more was passed than queued: %+v", now)
		last = now
	}
	t.drain()
	end := t.Resource.FreedOn(stream)
	t.check(end.Completed == end.Queued, "after drain the free counters say %+v", end)
	if t.Features.Has(core.StreamOrdered) {
		moved := end.Queued - start.Queued
		t.check(moved == told.bytes.Load() && moved >= total, "frees of %d bytes, told as %d, moved the free counters by %d", total, told.bytes.Load(), moved)
	}
}

// toldBytes sums the notices of blocks of one stream.
type toldBytes struct {
	stream core.StreamID
	bytes  atomic.Uint64
}

func (b *toldBytes) Released(block core.Block) {
	if block.ID.AllocStream == b.stream {
		b.bytes.Add(block.Bytes)
	}
}

// concurrentReapers lets frees, reaps and drains meet. The notices are
// checked at the end of every case.
func (t *trial) concurrentReapers() {
	stream := t.Streams(t)
	t.together(threads, func(i int) error {
		for n := range 50 {
			b, err := t.allocate(core.Request{Bytes: 256, Stream: stream})
			if err == nil {
				err = t.tryFree(b)
			}
			if err == nil && i%2 == 0 {
				err = t.Resource.ReapPending(t.ctx)
			}
			if err == nil && n%10 == 9 {
				err = t.Resource.Drain(t.ctx)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *trial) drainIsAccurate() {
	streams := []core.StreamID{core.DefaultStream, t.Streams(t), t.Streams(t)}
	var live []core.Block
	for i := range 30 {
		b := t.alloc(uint64(256*(i+1)), streams[i%3])
		t.succeed(t.launch(streams[(i+1)%3], core.Write, b, func() error { return nil }), "launch")
		live = append(live, b)
	}
	for _, b := range live {
		t.free(b)
	}
	t.succeed(t.Resource.Drain(context.Background()), "drain")
	left := t.Resource.Stats().Outstanding()
	t.check(left == t.before.Outstanding(), "after drain %+v is outstanding, before the case %+v", left, t.before.Outstanding())
	for _, b := range live {
		t.check(t.Resource.State(b.ID) == core.Freed, "after drain block %v is %v", b.ID, t.Resource.State(b.ID))
	}
}
