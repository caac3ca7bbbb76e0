package fence

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
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
	order   *Order
	streams []*Stream

	mu      sync.Mutex
	history History
}

func newHotBlock(t *testing.T, streams int) *hotBlock {
	t.Helper()
	h := &hotBlock{T: t, drv: new(countingNull), history: NewHistory()}
	h.order = NewOrder(h.drv, false)
	for range streams {
		s := new(Stream)
		h.order.Add(s, 0, false, new(Counts))
		h.streams = append(h.streams, s)
	}
	s := h.streams[0]
	s.Lock()
	written, err := s.Record(1)
	s.Unlock()
	h.must(err)
	h.history.Begin(written, core.SpanRef{})
	t.Cleanup(func() {
		h.history.Release()
		for _, s := range h.streams {
			s.Lock()
			h.must(s.CloseEvents())
			s.Unlock()
		}
		if made, gone := h.drv.created.Load(), h.drv.destroyed.Load(); made != gone {
			t.Errorf("%d events were made and %d destroyed", made, gone)
		}
	})
	return h
}

func (h *hotBlock) must(err error) {
	h.Helper()
	must.Do(h, err)
}

// hotLaunch is an open launch.
type hotLaunch struct {
	p   *Point
	in  core.Intent
	own bool
}

// announce opens a launch on s that reads the block, and makes it wait.
func (h *hotBlock) announce(s *Stream) (*hotLaunch, error) {
	l := &hotLaunch{in: core.Intent{Uses: make([]core.PreparedUse, 1)}, own: s.EnterOwn()}
	var err error
	if l.p, err = s.Announce(&l.in, l.own); err != nil {
		return nil, err
	}
	h.mu.Lock()
	_, holder := h.history.Announce(l.p, core.Read, 0)
	h.mu.Unlock()
	if holder != nil {
		h.Error("a read is in the way of a read")
	}
	return l, l.p.Fence(&l.in, nil)
}

func (l *hotLaunch) finish() error {
	s, err := l.p.stream, l.p.Finish(&l.in)
	l.p.End()
	s.LeaveOwn(l.own)
	return err
}

func (h *hotBlock) launch(s *Stream) error {
	l, err := h.announce(s)
	if err != nil {
		return err
	}
	return l.finish()
}

// together announces a launch on every stream, and then ends them.
func (h *hotBlock) together() {
	h.Helper()
	var launches []*hotLaunch
	for _, s := range h.streams {
		l, err := h.announce(s)
		h.must(err)
		launches = append(launches, l)
	}
	for _, l := range launches {
		h.must(l.finish())
	}
}

// held is what a block and its points take.
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
		for _, s := range h.streams {
			h.must(h.launch(s))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := held{accesses: len(h.history.accesses), capacity: cap(h.history.accesses), created: h.drv.created.Load()}
	for _, s := range h.streams {
		now.out += s.Events() - int64(len(s.points.free))
		for _, spare := range []*Point{s.points.spare.Load(), s.ownSpare} {
			if spare != nil {
				now.out--
			}
		}
	}
	return now
}

// read launches n reads from each stream at once and returns the longest list
// of accesses that was seen.
func (h *hotBlock) read(n int) int {
	var longest atomic.Int64
	var group sync.WaitGroup
	for _, s := range h.streams {
		group.Go(func() {
			for i := range n {
				if err := h.launch(s); err != nil {
					h.Error(err)
					return
				}
				if i%1024 == 0 {
					h.mu.Lock()
					longest.Store(max(longest.Load(), int64(len(h.history.accesses))))
					h.mu.Unlock()
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
	// Everything comes to the most that readers, one at a time on each stream, can ever
	// need. The list of the block holds a write and of each stream a finished read and an
	// announced one. A stream needs a point for those, one for what it is about to
	// announce, and one for each reader that has dropped one and not yet given it back.
	for _, s := range h.streams {
		h.must(h.launch(s))
	}
	h.together()
	for _, s := range h.streams {
		var points []*Point
		for range streams + 4 {
			p, err := s.point(1)
			h.must(err)
			points = append(points, p)
		}
		for _, p := range points {
			p.Release()
		}
	}
	before := h.held()
	longest := h.read(launches / streams)
	after := h.held()
	t.Logf("%d launches; of the block and its points %+v, at most %d accesses", launches, after, longest)
	if before != after {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if longest > 1+2*streams {
		t.Errorf("%d accesses of one block", longest)
	}
}

// A stream may be closed while a launch ends that has its spare point: the event of that is destroyed all the same.
func TestHammerAStreamIsClosedWhileALaunchEnds(t *testing.T) {
	for i := range 2000 {
		drv := new(countingNull)
		s := new(Stream)
		NewOrder(drv, false).Add(s, 0, false, new(Counts))
		var ending sync.WaitGroup
		ending.Go(func() {
			var h History
			for range 3 { // the third gives up the point of the first
				l := &hotLaunch{in: core.Intent{ID: 1, Uses: make([]core.PreparedUse, 1)}, own: s.EnterOwn()}
				l.p = must.Get(s.Announce(&l.in, l.own))(t)
				_, _ = h.Announce(l.p, core.Write, 0)
				must.Do(t, l.p.Fence(&l.in, nil), l.finish())
			}
			h.Release()
		})
		if i == 0 {
			ending.Wait()
		}
		s.Lock()
		must.Do(t, s.CloseEvents())
		s.Unlock()
		ending.Wait()
		if made, gone := drv.created.Load(), drv.destroyed.Load(); made != gone || s.Events() != 0 || s.Open() != 0 {
			t.Fatalf("%d events were made and %d destroyed; %d are left, and %d launches open", made, gone, s.Events(), s.Open())
		}
	}
}
