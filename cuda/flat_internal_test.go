package cuda

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// countingNull counts the events that it makes.
type countingNull struct {
	drivertest.Null
	created, destroyed atomic.Int64
}

func (d *countingNull) EventCreate() (driver.Event, error) {
	d.created.Add(1)
	return d.Null.EventCreate()
}

func (d *countingNull) EventDestroy(e driver.Event) error {
	d.destroyed.Add(1)
	return d.Null.EventDestroy(e)
}

// hotBlock is a block that many streams read at once, and nobody writes.
type hotBlock struct {
	*testing.T
	drv     *countingNull
	r       *AsyncResource
	streams []core.StreamID
	block   *block
	uses    []core.Use
}

func newHotBlock(t *testing.T, streams int) *hotBlock {
	t.Helper()
	h := &hotBlock{T: t, drv: new(countingNull)}
	p, err := NewStreamPool(h.drv, StreamPoolConfig{Max: streams})
	h.must(err)
	h.r, err = NewAsyncResource(h.drv, p, AsyncConfig{ReapInterval: -1})
	h.must(err)
	var leases []*Lease
	for range streams {
		l, err := p.Acquire(context.Background(), "hot")
		h.must(err)
		leases = append(leases, l)
		h.streams = append(h.streams, l.ID())
	}
	hot, err := h.r.Allocate(context.Background(), core.Request{Bytes: 256, Stream: h.streams[0]})
	h.must(err)
	h.block = p.table.lookup(hot.ID)
	h.launch(h.streams[0], core.Use{Block: hot.ID, Access: core.Write})
	h.uses = []core.Use{{Block: hot.ID, Access: core.Read}}
	t.Cleanup(func() {
		_, err := h.r.Deallocate(context.Background(), hot.ID)
		h.must(err)
		for _, l := range leases {
			h.must(l.Release())
		}
		h.must(h.r.Close(context.Background()))
		h.must(p.Close(context.Background()))
		if made, gone := h.drv.created.Load(), h.drv.destroyed.Load(); made != gone {
			t.Errorf("%d events were made and %d destroyed", made, gone)
		}
	})
	return h
}

func (h *hotBlock) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *hotBlock) prepare(on core.StreamID, uses ...core.Use) core.Ticket {
	h.Helper()
	ticket, err := h.r.PrepareUse(context.Background(), core.UseRequest{Stream: on, Uses: uses})
	h.must(err)
	return ticket
}

func (h *hotBlock) launch(on core.StreamID, uses ...core.Use) {
	h.Helper()
	h.must(h.r.FinishUse(context.Background(), h.prepare(on, uses...)))
}

// together announces some launches at once on every stream, and then ends
// them.
func (h *hotBlock) together(each int, uses ...core.Use) {
	h.Helper()
	var open []core.Ticket
	for _, on := range h.streams {
		for range each {
			open = append(open, h.prepare(on, uses...))
		}
	}
	for _, ticket := range open {
		h.must(h.r.FinishUse(context.Background(), ticket))
	}
}

// warm brings everything to the most that readers, one at a time on each
// stream, can ever need. The list of the block holds a write and of each
// stream a finished read and an announced one. A stream needs an event for
// those, one for what it is about to announce, and one for each reader that
// has dropped one and not yet given it back.
func (h *hotBlock) warm() {
	h.Helper()
	for _, on := range h.streams {
		h.launch(on, h.uses...)
	}
	h.together(1, h.uses...)
	private, err := h.r.Allocate(context.Background(), core.Request{Bytes: 256, Stream: h.streams[0]})
	h.must(err)
	h.together(len(h.streams)+3, core.Use{Block: private.ID, Access: core.Read})
	_, err = h.r.Deallocate(context.Background(), private.ID)
	h.must(err)
}

// held is what a block and its events take.
type held struct {
	accesses, capacity int
	// created are the driver's events, out those that somebody refers to.
	created, out int64
}

// held lets every stream read once more, so that what is covered is dropped,
// and looks.
func (h *hotBlock) held() held {
	h.Helper()
	for range 2 {
		for _, on := range h.streams {
			h.launch(on, h.uses...)
		}
	}
	h.block.mu.Lock()
	defer h.block.mu.Unlock()
	now := held{accesses: len(h.block.accesses), capacity: cap(h.block.accesses), created: h.drv.created.Load()}
	for _, s := range h.r.streams.table.streams() {
		now.out += s.events.made.Load() - int64(len(s.events.free))
		if s.events.spare.Load() != nil {
			now.out--
		}
	}
	return now
}

// read launches n reads from each stream at once and returns the longest list
// of accesses that was seen.
func (h *hotBlock) read(n int) int {
	var longest atomic.Int64
	var group sync.WaitGroup
	for _, on := range h.streams {
		group.Go(func() {
			for i := range n {
				ticket, err := h.r.PrepareUse(context.Background(), core.UseRequest{Stream: on, Uses: h.uses})
				if err == nil {
					err = h.r.FinishUse(context.Background(), ticket)
				}
				if err != nil {
					h.Error(err)
					return
				}
				if i%1024 == 0 {
					h.block.mu.Lock()
					longest.Store(max(longest.Load(), int64(len(h.block.accesses))))
					h.block.mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return int(longest.Load())
}

// A table that every stream reads for as long as the service lives must cost
// no more after a day than after a minute.
func TestTenMillionReadsOfAHotBlockLeaveNothingBehind(t *testing.T) {
	const streams = 16
	launches := 10_000_000
	if raceDetector {
		launches = 50_000
	}
	if testing.Short() {
		launches = 16_000
	}
	h := newHotBlock(t, streams)
	h.warm()
	before := h.held()
	longest := h.read(launches / streams)
	after := h.held()
	t.Logf("%d launches; of the block and its events %+v, at most %d accesses", launches, after, longest)
	if before != after {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if longest > 1+2*streams {
		t.Errorf("%d accesses of one block", longest)
	}
}
