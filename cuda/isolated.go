package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// A block asked for with core.Request.Isolated is not of the pool: it has
// addresses of its own, and memory that is mapped there for its life alone. Its
// readiness is not an event: the calls are the host's, so it is ready for
// every stream when Allocate returns, and no access stands for it.
//
// # The free
//
// An unmap respects no stream's order, so it is made when the device is known to
// be done with the block. The free is queued like any other: the waits for uses
// on other streams go into the allocation stream, and the mark behind the
// stream's frees covers it. Where the pool would get its memory in the order of
// the stream, nothing is enqueued. Whoever finds the mark completed sets the block
// aside: it may be the end of a launch that finds it, and an unmap takes long. A
// reap, or the next isolated allocation on the stream, unmaps the block under no lock,
// and only then is it released. Its bytes are never reusable in
// stream order, so the free counters count them, queued and completed at once,
// when they are back.
//
// # Addresses
//
// They stay reserved, with nothing there, so that a late access faults. The
// oldest are given back when there are too many.
//
// # Failures
//
// A mapping is taken down step by step, and remembers how far that has come.
// What fails is kept and tried again by every reap: a block that could not be
// unmapped is pending until it can be.

// The defaults of [AsyncConfig].
const (
	defaultIsolatedAddresses = 1 << 40
	defaultIsolatedRanges    = 1 << 16
)

// isolation is what a tracker keeps of its isolated blocks.
type isolation struct {
	// granularity is 0 if the device maps no memory.
	granularity         uint64
	maxBytes            uint64
	maxRanges           int
	mapped, mappedHigh  atomic.Int64
	addresses, leftover atomic.Int64 // bytes kept reserved; mappings to take down
	// entered and enteredBytes are the blocks that ever came into the books,
	// or are about to.
	entered, enteredBytes atomic.Int64

	mu sync.Mutex
	// remains is what is left of mappings that are no block's.
	remains []*mapping
	// kept are addresses without memory, oldest first. yielding is held by who
	// gives some back.
	kept     []addressRange
	yielding sync.Mutex
}

type addressRange struct{ ptr, bytes uint64 }

// mapping is memory at addresses of its own, as far as it is made or taken down.
type mapping struct {
	ptr, bytes uint64
	handle     driver.MemHandle
	mapped     bool
}

func (i *isolation) configure(cfg AsyncConfig, granularity uint64) {
	i.granularity, i.maxBytes, i.maxRanges = granularity, cfg.IsolatedAddresses, cfg.IsolatedRanges
	if i.maxBytes == 0 {
		i.maxBytes = defaultIsolatedAddresses
	}
	if i.maxRanges == 0 {
		i.maxRanges = defaultIsolatedRanges
	}
}

// enter counts a block that comes into the books next. The books must be the
// last to hear of any allocation, and the count come before the bytes: so
// whatever is on its way is lacking in the books, and nothing on its way makes up
// for something else. See [census].
func (i *isolation) enter(b *core.Block) {
	i.entered.Add(1)
	i.enteredBytes.Add(int64(b.Bytes))
}

// addMapped counts memory that was mapped.
func (i *isolation) addMapped(bytes uint64) {
	now := i.mapped.Add(int64(bytes))
	for high := i.mappedHigh.Load(); now > high && !i.mappedHigh.CompareAndSwap(high, now); {
		high = i.mappedHigh.Load()
	}
}

func (i *isolation) addTo(st *core.Stats) {
	st.Isolated, st.IsolatedHigh = clamp(i.mapped.Load()), clamp(i.mappedHigh.Load())
	st.IsolatedAddresses = clamp(i.addresses.Load())
}

const isolationAdvice = "the device or its driver maps no memory: ask Features for core.Isolation first"

// allocateIsolated gives req a mapping of its own. It may block in the driver,
// and holds no lock meanwhile: launches on the stream go on.
func (r *tracker) allocateIsolated(s *stream, req core.Request) (core.Block, error) {
	if r.isolated.granularity == 0 {
		return core.Block{}, core.UnsupportedError("Allocate of an isolated block", r.String(), isolationAdvice)
	}
	if _, _, err := r.allocateOn(s, req); err != nil {
		s.books.Fails.Add(1)
		return core.Block{}, err
	}
	_ = r.unmapCompleted(s, unmapAtOnce) // the next reap tells
	_ = r.clearMappings()
	m, err := r.mapMemory(req.Bytes)
	if err != nil {
		s.books.Fails.Add(1)
		return core.Block{}, err
	}
	b := blocks.Get().(*block)
	result := core.Block{
		ID:        core.BlockID{Ptr: m.ptr, Generation: core.NextGeneration(), AllocStream: req.Stream, Ordinal: r.ordinal},
		Requested: req.Requested, Bytes: req.Bytes, Align: core.DefaultAlign, Tag: req.Tag, State: core.Live,
	}
	b.fillMapped(s, result, req.Withheld, m.bytes)
	r.isolated.enter(&result)
	s.books.admit(&result, b, req.Withheld)
	return result, nil
}

// mapMemory makes a mapping of at least so many bytes. After an error nothing
// is left of it but what the driver would not take back, which is kept.
func (r *tracker) mapMemory(bytes uint64) (*mapping, error) {
	unit := r.isolated.granularity
	m := &mapping{bytes: (bytes + unit - 1) &^ (unit - 1)}
	if m.bytes < bytes {
		return nil, driver.NewError("MemCreate", driver.OutOfMemory)
	}
	if err := r.build(m); err != nil {
		if failed := r.dismantle(m); failed != nil {
			r.isolated.remain(m)
			err = fmt.Errorf("%w; what was made of the mapping is taken down by a later reap: %w", err, failed)
		}
		return nil, err
	}
	return m, nil
}

// build makes a mapping. The handle is given back at once: from then on the
// memory lives as long as it is mapped, so that one call ends it.
func (r *tracker) build(m *mapping) (err error) {
	if m.ptr, err = r.reserve(m.bytes); err != nil {
		return err
	}
	if m.handle, err = r.create(m.bytes); err != nil {
		return err
	}
	r.isolated.addMapped(m.bytes)
	if err := r.drv.MemMap(m.ptr, m.bytes, m.handle); err != nil {
		return err
	}
	m.mapped = true
	if err := r.drv.MemAccess(m.ptr, m.bytes); err != nil {
		return err
	}
	if err := r.drv.MemRelease(m.handle); err != nil {
		return err
	}
	m.handle = 0
	return nil
}

// reserve gives up the addresses that are kept if there are no others.
func (r *tracker) reserve(bytes uint64) (uint64, error) {
	ptr, err := r.drv.MemReserve(bytes)
	if !errors.Is(err, core.ErrOutOfMemory) || r.isolated.addresses.Load() == 0 {
		return ptr, err
	}
	if yieldErr := r.yield(0, 0); yieldErr != nil {
		return 0, errors.Join(err, yieldErr)
	}
	return r.drv.MemReserve(bytes)
}

// create gives up what the device has completed and what the pool holds in vain, if
// the device has nothing else.
func (r *tracker) create(bytes uint64) (driver.MemHandle, error) {
	h, err := r.drv.MemCreate(bytes)
	if !errors.Is(err, core.ErrOutOfMemory) {
		return h, err
	}
	for _, s := range r.streams.table.streams() {
		_ = r.unmapCompleted(s, unlimited) // the next reap tells
	}
	if trimErr := r.withMemory("Allocate", func() error { return r.memory.trim(0) }); trimErr != nil {
		return 0, errors.Join(err, trimErr)
	}
	return r.drv.MemCreate(bytes)
}

// dismantle takes down what there is of a mapping that nobody was given. After
// an error it can be called again.
func (r *tracker) dismantle(m *mapping) error {
	if m.mapped {
		if err := r.drv.MemUnmap(m.ptr, m.bytes); err != nil {
			return err
		}
		m.mapped = false
		if m.handle == 0 {
			r.isolated.mapped.Add(-int64(m.bytes))
		}
	}
	if m.handle != 0 {
		if err := r.drv.MemRelease(m.handle); err != nil {
			return err
		}
		m.handle = 0
		r.isolated.mapped.Add(-int64(m.bytes))
	}
	if m.ptr != 0 {
		if err := r.drv.MemUnreserve(m.ptr, m.bytes); err != nil {
			return err
		}
		m.ptr = 0
	}
	return nil
}

func (i *isolation) remain(m *mapping) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.remains = append(i.remains, m)
	i.leftover.Add(1)
}

// clearRemains takes down what is left of mappings; it returns the first error.
func (r *tracker) clearRemains() error {
	i := &r.isolated
	if i.leftover.Load() == 0 {
		return nil
	}
	i.mu.Lock()
	remains := i.remains
	i.remains = nil
	i.mu.Unlock()
	var first error
	for _, m := range remains {
		err := r.dismantle(m)
		if err != nil {
			i.remain(m)
		}
		i.leftover.Add(-1) // what remains again counts anew
		if first == nil {
			first = err
		}
	}
	return first
}

// unmap gives the memory of a block back that the device is done with, and
// keeps its addresses.
func (r *tracker) unmap(ptr, bytes uint64) error {
	if err := r.drv.MemUnmap(ptr, bytes); err != nil {
		return err
	}
	i := &r.isolated
	i.mapped.Add(-int64(bytes))
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kept = append(i.kept, addressRange{ptr, bytes})
	i.addresses.Add(int64(bytes))
	return nil
}

// clearMappings takes down what is left of mappings, and gives back the oldest
// addresses beyond the limits, after Close all. What fails is tried again by the next
// call. No lock may be held.
func (r *tracker) clearMappings() error {
	first := r.clearRemains()
	bytes, ranges := r.isolated.maxBytes, r.isolated.maxRanges
	if r.inMemory.Load() == memoryGone { // nobody gives back later what is kept now
		bytes, ranges = 0, 0
	}
	err := r.yield(bytes, ranges)
	return cmp.Or(first, err)
}

// yield gives addresses back, oldest first, until at most so many bytes and
// ranges are kept. A range that the driver does not take back stays, and stands
// in no other's way.
func (r *tracker) yield(bytes uint64, ranges int) error {
	i := &r.isolated
	if i.addresses.Load() == 0 {
		return nil
	}
	i.yielding.Lock()
	defer i.yielding.Unlock()
	var first error
	refused := 0 // at the front
	for {
		oldest, ok := i.excess(bytes, ranges, refused)
		if !ok {
			return first
		}
		if err := r.drv.MemUnreserve(oldest.ptr, oldest.bytes); err != nil {
			first = cmp.Or(first, err)
			refused++
			continue
		}
		i.forget(refused)
	}
}

// excess is the oldest range behind those that were refused, if more is kept
// than the limits; yielding must be held.
func (i *isolation) excess(bytes uint64, ranges, refused int) (addressRange, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.kept) == refused || clamp(i.addresses.Load()) <= bytes && len(i.kept) <= ranges {
		return addressRange{}, false
	}
	return i.kept[refused], true
}

// forget drops a range that was given back; yielding must be held.
func (i *isolation) forget(at int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.addresses.Add(-int64(i.kept[at].bytes))
	if at == 0 {
		i.kept = i.kept[1:]
		return
	}
	i.kept = slices.Delete(i.kept, at, at+1)
}
