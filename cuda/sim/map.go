package sim

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// physical is memory of MemCreate. It lives as long as its handle or its
// mapping does.
type physical struct {
	bytes  uint64
	handle bool   // not released
	at     uint64 // where it is mapped, 0 for nowhere
	lives  uint64 // how often it was made accessible
}

// mapFactor is how much more address space than memory there is for MemReserve.
const mapFactor = 8

// lockMapped locks the device and the heap of mapped memory, which is made at
// the first call; unlock undoes it.
func (d *Device) lockMapped(m *method) (h *heap, unlock func(), err error) {
	if err := d.begin(m); err != nil {
		return nil, nil, err
	}
	if h = d.mapped.Load(); h == nil {
		span := min(d.config.Bytes*mapFactor, deviceSpan)
		a, err := newArena(mapBase+uint64(d.config.Ordinal)*deviceSpan, span/vaFactor)
		if err != nil {
			d.mu.Unlock()
			return nil, nil, fault(m, driver.OutOfMemory, err.Error())
		}
		h = newHeap(a, 0)
		h.addresses.cursor = a.base
		d.mapped.Store(h)
	}
	h.Lock()
	return h, func() { h.Unlock(); d.mu.Unlock() }, nil
}

func badSize(m *method, bytes uint64) error {
	return fault(m, driver.InvalidValue, fmt.Sprintf("%d bytes are not a multiple of the granularity %d, or none", bytes, Granule))
}

func badRange(m *method, ptr, bytes uint64, what string) error {
	return fault(m, driver.InvalidValue, fmt.Sprintf("%d bytes at %#x are not %s", bytes, ptr, what))
}

// MemCreate takes memory from the device. Pools keep what they hold. It does
// not block.
func (d *Device) MemCreate(bytes uint64) (driver.MemHandle, error) {
	_, unlock, err := d.lockMapped(mMemCreate)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if bytes == 0 || bytes%Granule != 0 {
		return 0, badSize(mMemCreate, bytes)
	}
	d.memory.Lock()
	defer d.memory.Unlock()
	if d.faults.memory.due() {
		return 0, fault(mMemCreate, driver.OutOfMemory, "injected by OutOfMemoryAt")
	}
	if left := d.memory.capacity - d.memory.reserved; bytes > left {
		return 0, fault(mMemCreate, driver.OutOfMemory, fmt.Sprintf("%d bytes asked for; %d are neither a pool's nor a handle's", bytes, left))
	}
	d.memory.reserved += bytes
	return d.created.put(&physical{bytes: bytes, handle: true}), nil
}

// MemRelease gives the handle back, and the memory unless it is mapped. It does
// not block.
func (d *Device) MemRelease(mh driver.MemHandle) error {
	_, unlock, err := d.lockMapped(mMemRelease)
	if err != nil {
		return err
	}
	defer unlock()
	p, err := d.created.take(mMemRelease, mh)
	if err != nil {
		return err
	}
	p.handle = false
	d.giveBack(p)
	return nil
}

// giveBack returns memory to the device that has neither handle nor mapping.
func (d *Device) giveBack(p *physical) {
	if p.handle || p.at != 0 {
		return
	}
	d.memory.Lock()
	defer d.memory.Unlock()
	d.memory.reserved -= p.bytes
}
