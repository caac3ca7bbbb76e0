// Package vmm gives memory addresses of its own: it reserves a range, and maps memory
// there for one life alone. When that is over the range stays reserved for a while, with
// nothing there, so that a late access faults.
//
// A mapping is made and taken down step by step, and remembers how far that has come.
// What the driver does not take back is kept, and tried again by every [Mapper.Reap].
package vmm

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

// Range is a range of addresses.
type Range struct{ Ptr, Bytes uint64 }

// Mapper maps memory of one device. Its methods are safe for concurrent use and may block
// in the driver. Errors are the driver's.
type Mapper struct {
	drv         driver.Driver
	granularity uint64
	maxBytes    uint64
	maxRanges   int

	mapped, mappedHigh  atomic.Int64
	addresses, leftover atomic.Int64 // bytes kept reserved; mappings to take down

	mu sync.Mutex
	// remains is what is left of mappings that no caller was given.
	remains []*mapping
	// kept are addresses without memory, oldest first. yielding is held by who
	// gives some back.
	kept     []Range
	yielding sync.Mutex
}

// mapping is memory at addresses of its own, as far as it is made or taken down.
type mapping struct {
	Range
	handle driver.MemHandle
	mapped bool
}

// New returns a mapper that keeps at most so many bytes of addresses reserved with nothing
// there, in at most so many ranges. granularity is the device's, 0 if it maps no memory:
// then Map must not be called.
func New(drv driver.Driver, granularity, maxBytes uint64, maxRanges int) *Mapper {
	return &Mapper{drv: drv, granularity: granularity, maxBytes: maxBytes, maxRanges: maxRanges}
}

// Granularity is what sizes are rounded up to, in bytes; 0 if the device maps no memory.
func (m *Mapper) Granularity() uint64 { return m.granularity }

// Mapped is how many bytes of the device's memory are mapped.
func (m *Mapper) Mapped() uint64 { return clamp(m.mapped.Load()) }

// AddTo adds what is mapped, and the addresses kept.
func (m *Mapper) AddTo(st *core.Stats) {
	st.Isolated += m.Mapped()
	st.IsolatedHigh += clamp(m.mappedHigh.Load())
	st.IsolatedAddresses += clamp(m.addresses.Load())
}

// Leftover reports whether a reap has something to take down.
func (m *Mapper) Leftover() bool { return m.leftover.Load() > 0 }

// Map maps at least so many bytes. If the device has no memory left it calls relieve once,
// and tries again. After an error nothing is left of it but what the driver would not take
// back, which is kept for Reap.
func (m *Mapper) Map(bytes uint64, relieve func() error) (Range, error) {
	p := &mapping{Range: Range{Bytes: (bytes + m.granularity - 1) &^ (m.granularity - 1)}}
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
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = append(m.kept, r)
	m.addresses.Add(int64(r.Bytes))
	return nil
}

// Reap takes down what is left of mappings, and gives back the oldest
// addresses beyond the limits. What fails is tried again by the next call.
func (m *Mapper) Reap() error {
	first := m.clearRemains()
	err := m.yield(m.maxBytes, m.maxRanges)
	return cmp.Or(first, err)
}

// Close takes down what is left of mappings, and gives all addresses back that are kept.
// What is mapped stays. After an error it can be called again.
func (m *Mapper) Close() error { return cmp.Or(m.clearRemains(), m.yield(0, 0)) }

// build makes a mapping. The handle is given back at once: from then on the
// memory lives as long as it is mapped, so that one call ends it.
func (m *Mapper) build(p *mapping, relieve func() error) (err error) {
	if p.Ptr, err = m.reserve(p.Bytes); err != nil {
		return err
	}
	if p.handle, err = m.create(p.Bytes, relieve); err != nil {
		return err
	}
	m.addMapped(p.Bytes)
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

// reserve gives up the addresses that are kept if there are no others.
func (m *Mapper) reserve(bytes uint64) (uint64, error) {
	ptr, err := m.drv.MemReserve(bytes)
	if !errors.Is(err, core.ErrOutOfMemory) || m.addresses.Load() == 0 {
		return ptr, err
	}
	if yieldErr := m.yield(0, 0); yieldErr != nil {
		return 0, errors.Join(err, yieldErr)
	}
	return m.drv.MemReserve(bytes)
}

// create gives relieve one chance, if the device has no memory left.
func (m *Mapper) create(bytes uint64, relieve func() error) (driver.MemHandle, error) {
	h, err := m.drv.MemCreate(bytes)
	if !errors.Is(err, core.ErrOutOfMemory) {
		return h, err
	}
	if relieveErr := relieve(); relieveErr != nil {
		return 0, errors.Join(err, relieveErr)
	}
	return m.drv.MemCreate(bytes)
}

// addMapped counts memory that was mapped.
func (m *Mapper) addMapped(bytes uint64) {
	now := m.mapped.Add(int64(bytes))
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
		if err := m.drv.MemUnreserve(p.Ptr, p.Bytes); err != nil {
			return err
		}
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

// yield gives addresses back, oldest first, until at most so many bytes and
// ranges are kept. A range that the driver does not take back stays, and stands
// in no other's way.
func (m *Mapper) yield(bytes uint64, ranges int) error {
	if m.addresses.Load() == 0 {
		return nil
	}
	m.yielding.Lock()
	defer m.yielding.Unlock()
	var first error
	refused := 0 // at the front
	for {
		oldest, ok := m.excess(bytes, ranges, refused)
		if !ok {
			return first
		}
		if err := m.drv.MemUnreserve(oldest.Ptr, oldest.Bytes); err != nil {
			first = cmp.Or(first, err)
			refused++
			continue
		}
		m.forget(refused)
	}
}

// excess is the oldest range behind those that were refused, if more is kept
// than the limits; yielding must be held.
func (m *Mapper) excess(bytes uint64, ranges, refused int) (Range, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.kept) == refused || clamp(m.addresses.Load()) <= bytes && len(m.kept) <= ranges {
		return Range{}, false
	}
	return m.kept[refused], true
}

// forget drops a range that was given back; yielding must be held.
func (m *Mapper) forget(at int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.addresses.Add(-int64(m.kept[at].Bytes))
	if at == 0 {
		m.kept = m.kept[1:]
		return
	}
	m.kept = slices.Delete(m.kept, at, at+1)
}

func clamp(n int64) uint64 { return uint64(max(n, 0)) }
