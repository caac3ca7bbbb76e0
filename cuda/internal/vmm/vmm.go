// Package vmm gives memory addresses of its own: it maps memory at addresses where nothing
// was mapped before, for one life alone. When that is over they stay reserved for a while,
// with nothing there, so that a late access faults. A granule before the next life's
// addresses is left out, so that an access behind the memory faults, too.
//
// Addresses are reserved by the region: the more ranges a process has reserved, the longer
// the driver takes for the next (1.3 ms at 65536, measured on an H200 with driver 580).
//
// A mapping is made and taken down step by step, and remembers how far that has come.
// What the driver does not take back is kept, and tried again by every [Mapper.Reap].
package vmm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Range is a range of addresses.
type Range struct{ Ptr, Bytes uint64 }

// Mapper maps memory of one device. Its methods are safe for concurrent use and may block
// in the driver. Errors are the driver's.
type Mapper struct {
	drv         driver.Driver
	granularity uint64
	maxBytes    uint64
	// Room, if not nil, says whether there is room for what is mapped, that which comes included.
	// An error for want of room matches [core.ErrOutOfMemory]. It is set before the first Map.
	Room func() error

	mapped, mappedHigh  atomic.Int64 // mapped counts what comes, too
	addresses, leftover atomic.Int64 // bytes of addresses kept; mappings to take down

	mu sync.Mutex
	// remains is what is left of mappings that no caller was given.
	remains []*mapping
	// regionBytes is how many addresses are reserved at once.
	regionBytes uint64
	// regions are all, by address. Addresses are handed out from current, which is nil if
	// there is no room; idle are the others of which nothing is in use, in the order in
	// which they came to that. yielding is held by who gives some back.
	regions  []*region
	current  *region
	idle     []*region
	yielding sync.Mutex
}

// region is a range of reserved addresses, handed out upwards and once.
type region struct {
	Range
	handed uint64 // bytes from the beginning
	lives  int    // in use
	kept   uint64 // bytes of those that are over
}

// mapping is memory at addresses of its own, as far as it is made or taken down.
type mapping struct {
	Range
	handle driver.MemHandle
	mapped bool
}

// regionShare is the part of the addresses that may be kept that is reserved at once.
const regionShare = 128

// New returns a mapper that keeps the addresses of at most so many bytes of memory that
// was, but for those whose region has memory that is. granularity is the device's, 0 if it
// maps no memory: then Map must not be called.
func New(drv driver.Driver, granularity, maxBytes uint64) *Mapper {
	m := &Mapper{drv: drv, granularity: granularity, maxBytes: maxBytes}
	m.regionBytes = m.granules(maxBytes/regionShare + 1)
	return m
}

// granules rounds up; the result is below bytes if that overflows.
func (m *Mapper) granules(bytes uint64) uint64 {
	return (bytes + m.granularity - 1) &^ (m.granularity - 1)
}

// Granularity is what sizes are rounded up to, in bytes; 0 if the device maps no memory.
func (m *Mapper) Granularity() uint64 { return m.granularity }

// Mapped is how many bytes of the device's memory are mapped, or are about to be.
func (m *Mapper) Mapped() uint64 { return clamp(m.mapped.Load()) }

// AddTo adds what is mapped, and the addresses kept.
func (m *Mapper) AddTo(st *core.Stats) {
	st.Isolated += m.Mapped()
	st.IsolatedHigh += clamp(m.mappedHigh.Load())
	st.IsolatedAddresses += clamp(m.addresses.Load())
}

// Leftover reports whether a reap has something to take down.
func (m *Mapper) Leftover() bool { return m.leftover.Load() > 0 }

// Map maps at least so many bytes. If the device has no memory left, or there is no Room, it calls
// relieve once, with the bytes that it maps, and tries again. After an error nothing is left of it
// but what the driver would not take back, which is kept for Reap.
func (m *Mapper) Map(bytes uint64, relieve func(bytes uint64) error) (Range, error) {
	p := &mapping{Range: Range{Bytes: m.granules(bytes)}}
	if p.Bytes < bytes {
		return Range{}, driver.NewError("MemCreate", driver.OutOfMemory)
	}
	if err := m.build(p, relieve); err != nil {
		if failed := m.dismantle(p); failed != nil {
			m.remain(p)
			err = fmt.Errorf("%w; what was made of the mapping is taken down by a later reap: %w", err, failed)
		}
		return Range{}, err
	}
	return p.Range, nil
}

// Unmap gives back the memory of a range that Map returned, which the device must be done
// with, and keeps the addresses. After an error it is mapped as before.
func (m *Mapper) Unmap(r Range) error {
	if err := m.drv.MemUnmap(r.Ptr, r.Bytes); err != nil {
		return err
	}
	m.mapped.Add(-int64(r.Bytes))
	m.keep(r)
	return nil
}

// Reap takes down what is left of mappings, and gives back the oldest
// addresses beyond the limit. What fails is tried again by the next call.
func (m *Mapper) Reap() error {
	first := m.clearRemains()
	err := m.yield(m.maxBytes)
	return cmp.Or(first, err)
}

// Close takes down what is left of mappings, and gives all addresses back that are kept.
// What is mapped stays. After an error it can be called again.
func (m *Mapper) Close() error {
	first := m.clearRemains()
	return cmp.Or(first, m.yieldAll())
}

// build makes a mapping. The handle is given back at once: from then on the
// memory lives as long as it is mapped, so that one call ends it.
func (m *Mapper) build(p *mapping, relieve func(bytes uint64) error) (err error) {
	if p.Ptr, err = m.reserve(p.Bytes); err != nil {
		return err
	}
	if p.handle, err = m.create(p.Bytes, relieve); err != nil {
		return err
	}
	if err := m.drv.MemMap(p.Ptr, p.Bytes, p.handle); err != nil {
		return err
	}
	p.mapped = true
	if err := m.drv.MemAccess(p.Ptr, p.Bytes); err != nil {
		return err
	}
	if err := m.drv.MemRelease(p.handle); err != nil {
		return err
	}
	p.handle = 0
	return nil
}

// reserve hands out addresses. Where the driver has too few for a region it is asked for a
// smaller one, and if there are none at all those that are kept are given up.
func (m *Mapper) reserve(bytes uint64) (uint64, error) {
	for yielded := false; ; {
		if ptr, ok := m.take(bytes); ok {
			return ptr, nil
		}
		size := m.regionSize(bytes)
		ptr, err := m.drv.MemReserve(size)
		switch {
		case err == nil:
			return m.add(Range{ptr, size}, bytes), nil
		case !errors.Is(err, core.ErrOutOfMemory):
			return 0, err
		case size > bytes:
			m.shrink(size / 2)
		case yielded:
			return 0, err
		default:
			yielded = true
			if yieldErr := m.yieldAll(); yieldErr != nil {
				return 0, errors.Join(err, yieldErr)
			}
		}
	}
}

// take hands out addresses of the current region, if there is room.
func (m *Mapper) take(bytes uint64) (uint64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.current
	if r == nil || r.Bytes-r.handed < bytes {
		return 0, false
	}
	return m.hand(r, bytes), true
}

// hand hands out addresses of a region that has them; mu must be held.
func (m *Mapper) hand(r *region, bytes uint64) uint64 {
	ptr := r.Ptr + r.handed
	r.handed = min(r.handed+bytes+m.granularity, r.Bytes)
	r.lives++
	return ptr
}

// regionSize is how many addresses to reserve for so many bytes.
func (m *Mapper) regionSize(bytes uint64) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(bytes, m.regionBytes)
}

func (m *Mapper) shrink(bytes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.regionBytes = min(m.regionBytes, m.granules(bytes))
}

// add makes a new region the current one, and hands out its first addresses.
func (m *Mapper) add(at Range, bytes uint64) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.retire()
	m.current = &region{Range: at}
	m.regions = slices.Insert(m.regions, m.behind(at.Ptr), m.current)
	return m.hand(m.current, bytes)
}

// retire hands out no more of the current region; mu must be held.
func (m *Mapper) retire() {
	if r := m.current; r != nil && r.lives == 0 {
		m.idle = append(m.idle, r)
	}
	m.current = nil
}

// behind is the place of the first region that begins above an address; mu must be held.
func (m *Mapper) behind(ptr uint64) int {
	return sort.Search(len(m.regions), func(i int) bool { return m.regions[i].Ptr > ptr })
}

// keep ends the use of addresses, where nothing is mapped any more.
func (m *Mapper) keep(at Range) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.regions[m.behind(at.Ptr)-1]
	r.lives--
	r.kept += at.Bytes
	m.addresses.Add(int64(at.Bytes))
	switch {
	case r.lives > 0:
	case r != m.current:
		m.idle = append(m.idle, r)
	case r.handed == r.Bytes:
		m.retire()
	}
}

// create gives relieve one chance, if the device has no memory left, or there is no room.
func (m *Mapper) create(bytes uint64, relieve func(bytes uint64) error) (driver.MemHandle, error) {
	h, err := m.createCounted(bytes)
	if !errors.Is(err, core.ErrOutOfMemory) {
		return h, err
	}
	if relieveErr := relieve(bytes); relieveErr != nil {
		return 0, errors.Join(err, relieveErr)
	}
	return m.createCounted(bytes)
}

// createCounted counts memory as mapped before it looks for room.
func (m *Mapper) createCounted(bytes uint64) (h driver.MemHandle, err error) {
	m.mapped.Add(int64(bytes))
	if m.Room != nil {
		err = m.Room()
	}
	if err == nil {
		h, err = m.drv.MemCreate(bytes)
	}
	if err != nil {
		m.mapped.Add(-int64(bytes))
		return 0, err
	}
	m.noteHigh(m.mapped.Load())
	return h, nil
}

func (m *Mapper) noteHigh(now int64) {
	for high := m.mappedHigh.Load(); now > high && !m.mappedHigh.CompareAndSwap(high, now); {
		high = m.mappedHigh.Load()
	}
}

// dismantle takes down what there is of a mapping that no caller was given. After
// an error it can be called again.
func (m *Mapper) dismantle(p *mapping) error {
	if p.mapped {
		if err := m.drv.MemUnmap(p.Ptr, p.Bytes); err != nil {
			return err
		}
		p.mapped = false
		if p.handle == 0 {
			m.mapped.Add(-int64(p.Bytes))
		}
	}
	if p.handle != 0 {
		if err := m.drv.MemRelease(p.handle); err != nil {
			return err
		}
		p.handle = 0
		m.mapped.Add(-int64(p.Bytes))
	}
	if p.Ptr != 0 {
		m.keep(p.Range)
		p.Ptr = 0
	}
	return nil
}

func (m *Mapper) remain(p *mapping) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remains = append(m.remains, p)
	m.leftover.Add(1)
}

// clearRemains takes down what is left of mappings; it returns the first error.
func (m *Mapper) clearRemains() error {
	if m.leftover.Load() == 0 {
		return nil
	}
	m.mu.Lock()
	remains := m.remains
	m.remains = nil
	m.mu.Unlock()
	var first error
	for _, p := range remains {
		err := m.dismantle(p)
		if err != nil {
			m.remain(p)
		}
		m.leftover.Add(-1) // what remains again counts anew
		first = cmp.Or(first, err)
	}
	return first
}

// yieldAll gives back all addresses that are not in use.
func (m *Mapper) yieldAll() error {
	m.mu.Lock()
	m.retire()
	m.mu.Unlock()
	return m.yield(0)
}

// yield gives regions back, oldest first, until the addresses of at most so many bytes are
// kept. A region that the driver does not take back stays, and stands in no other's way.
func (m *Mapper) yield(bytes uint64) error {
	if m.addresses.Load() == 0 {
		return nil
	}
	m.yielding.Lock()
	defer m.yielding.Unlock()
	var first error
	refused := 0 // at the front
	for {
		oldest := m.excess(bytes, refused)
		if oldest == nil {
			return first
		}
		if err := m.drv.MemUnreserve(oldest.Ptr, oldest.Bytes); err != nil {
			first = cmp.Or(first, err)
			refused++
			continue
		}
		m.forget(oldest)
	}
}

// excess is the oldest idle region behind those that were refused, nil if no more is kept
// than the limit; yielding must be held.
func (m *Mapper) excess(bytes uint64, refused int) *region {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.idle) == refused || clamp(m.addresses.Load()) <= bytes {
		return nil
	}
	return m.idle[refused]
}

// forget drops a region that was given back.
func (m *Mapper) forget(r *region) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addresses.Add(-int64(r.kept))
	is := func(other *region) bool { return other == r }
	m.idle, m.regions = slices.DeleteFunc(m.idle, is), slices.DeleteFunc(m.regions, is)
}

func clamp(n int64) uint64 { return uint64(max(n, 0)) }
