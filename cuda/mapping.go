package cuda

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

const isolationAdvice = "the device or its driver maps no memory: ask Features for core.Isolation first"

// allocateIsolated gives req a mapping of its own. It may block in the driver,
// and holds no lock meanwhile: launches on the stream go on.
func (r *AsyncResource) allocateIsolated(s *stream, req core.Request) (core.Block, error) {
	if r.isolated.granularity == 0 {
		return core.Block{}, core.UnsupportedError("Allocate of an isolated block", r.String(), isolationAdvice)
	}
	if err := r.mayAllocate(s, req.Stream); err != nil {
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

// mayAllocate refuses what an allocation from the pool would be refused for,
// and reaps as that does.
func (r *AsyncResource) mayAllocate(s *stream, id core.StreamID) error {
	s.Lock()
	done := r.takeSome(s)
	var err error
	if s.IsGivenUp() {
		err = givenUpError("Allocate", id)
	} else {
		err = s.RefuseCaptured("Allocate", id)
	}
	s.Unlock()
	r.releaseCompleted(s, done)
	return err
}

// mapMemory makes a mapping of at least so many bytes. After an error nothing
// is left of it but what the driver would not take back, which is kept.
func (r *AsyncResource) mapMemory(bytes uint64) (*mapping, error) {
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
func (r *AsyncResource) build(m *mapping) (err error) {
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
func (r *AsyncResource) reserve(bytes uint64) (uint64, error) {
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
func (r *AsyncResource) create(bytes uint64) (driver.MemHandle, error) {
	h, err := r.drv.MemCreate(bytes)
	if !errors.Is(err, core.ErrOutOfMemory) {
		return h, err
	}
	for _, s := range r.streams.table.streams() {
		_ = r.unmapCompleted(s, unlimited) // the next reap tells
	}
	if trimErr := r.withPool("Allocate", func(p driver.Pool) error { return r.drv.PoolTrim(p, 0) }); trimErr != nil {
		return 0, errors.Join(err, trimErr)
	}
	return r.drv.MemCreate(bytes)
}

// dismantle takes down what there is of a mapping that nobody was given. After
// an error it can be called again.
func (r *AsyncResource) dismantle(m *mapping) error {
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
func (r *AsyncResource) clearRemains() error {
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
