package cuda

import (
	"cmp"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/internal/pages"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

// pendingFrees is what was freed and is not released, in bytes, and what of that the memory was
// given.
func (r *tracker) pendingFrees() (all, given uint64) {
	for _, s := range r.streams.table.streams() {
		given += s.frees.bytes.pending()
	}
	return r.inBooks().Pending.Bytes, given
}

// limited is how much a pool may hold by its own limit, if it has one, and by the share, and which of the two is less.
func (r *tracker) limited(limit uint64) (may uint64, by string) {
	may, by = cmp.Or(limit, noBound), core.BoundPool
	if share := r.share.forPool(); share < may {
		may, by = share, core.BoundBudget
	}
	return may, by
}

// deviceHas is what a pool that holds so much could hold of the device.
func (r *tracker) deviceHas(held uint64) (may uint64, by string) {
	free, _, err := r.streams.drv.MemInfo()
	if err != nil {
		free = 0
	}
	return held + free, core.BoundDevice
}

// explain completes the refusal of a request, of which the memory has said what it holds, with what is mapped for isolated
// blocks: no pool's limit counts that.
func (r *tracker) explain(req *core.Request, e core.OutOfMemoryError) *core.OutOfMemoryError {
	e.Requested, e.Tag = req.Bytes, req.Tag
	mapped := r.mapper.Mapped()
	e.Held, e.Used = e.Held+mapped, e.Used+mapped
	if e.May += min(mapped, noBound-e.May); e.Bound == core.BoundBudget {
		e.May = r.share.most()
	}
	pending, given := r.pendingFrees()
	waits := min(pending-min(pending, given), e.Used) // the memory was not given it
	e.Used, e.Behind = e.Used-waits, e.Behind+waits
	refuse.Memory(&e)
	return &e
}

// explain is the refusal of a request that every attempt has failed for, the last one with err. growing and moving are held, so
// that no page is on its way. What the device gives or others free meanwhile may have made room: then the request is tried again.
func (m *arenas) explain(s *stream, req *core.Request, err error) *core.OutOfMemoryError {
	e := m.shortage()
	largest, movable := m.largest(s)
	e.Largest = max(largest, movable)
	if pages.IsOverLimit(err) {
		e.May, e.Bound = m.tracker.limited(m.store.OwnLimit())
		if room := e.May - min(e.May, e.Held); room >= m.page {
			e.Largest = max(e.Largest, movable+room/m.page*m.page)
		}
	} else {
		e.Err = err
		e.May, e.Bound = m.tracker.deviceHas(e.Held)
		if errors.Is(err, errNoRow) { // no addresses are free where pages could be moved to
			e.Largest = largest
		}
	}
	return m.tracker.explain(req, e)
}

func (m *arenas) shortage() core.OutOfMemoryError {
	e := core.OutOfMemoryError{Held: m.store.Held()}
	var has holdings
	for _, l := range *m.all.Load() {
		l.addTo(&has)
	}
	e.Used = min(has.used, e.Held)
	e.Behind, e.Fragmented = has.behind+has.held, has.pieces
	return e
}

// largest is the largest free range that s could have where it is, behind waits, and how many bytes of pages could be moved
// beside each other.
func (m *arenas) largest(s *stream) (bytes, movable uint64) {
	s.arena.mu.Lock()
	bytes = s.arena.fit.Largest()
	s.arena.mu.Unlock()
	movable = m.store.Spare()
	for _, row := range m.completedRows() {
		m.store.Pieces(row.ptr, row.bytes, func(_, bytes uint64, _ bool) { movable += bytes }) // a slab moves as a whole
	}
	row := pages.Part{}
	for _, p := range m.parts(s, *m.all.Load(), false, true) {
		if p.Ptr != row.End() {
			row = pages.Part{Ptr: p.Ptr}
		}
		row.Bytes += p.Bytes
		bytes = max(bytes, row.Bytes)
	}
	return bytes, movable
}

// explain is the refusal of a request for which the driver's pool has no memory.
func (p *driverPool) explain(req *core.Request, err error) error {
	e := p.shortage()
	if err == nil {
		e.May, e.Bound = p.tracker.limited(0)
	} else {
		e.Err = err
		e.May, e.Bound = p.tracker.deviceHas(e.Held)
	}
	return p.tracker.explain(req, e)
}

func (p *driverPool) shortage() core.OutOfMemoryError {
	last := p.last.Load()
	e := core.OutOfMemoryError{Held: last.Reserved, Used: min(last.Used, last.Reserved)}
	_, given := p.tracker.pendingFrees()
	e.Behind = min(given, e.Held-e.Used)
	e.Fragmented = e.Held - e.Used - e.Behind
	return e
}

// explainIsolated is the refusal of an isolated block, for which the device has no memory, or the share no room: the
// pool was trimmed before.
func (r *tracker) explainIsolated(req *core.Request, err error) error {
	if !errors.Is(err, core.ErrOutOfMemory) {
		return err
	}
	e := r.memory.shortage()
	e.Held = max(e.Held, r.memory.held())
	if errors.Is(err, errShare) {
		e.Bound = core.BoundBudget
	} else {
		e.Err = err
		e.May, e.Bound = r.deviceHas(e.Held)
	}
	return r.explain(req, e)
}
