package sim

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/size"
)

func outOfMemory(m *method, bytes uint64, p *pool) error {
	of := size.Figures(bytes, p.stats.Reserved, p.stats.Used, p.heap.reserved, p.heap.capacity)
	text := fmt.Sprintf("%s asked for; the pool holds %s with %s in use, all pools hold %s of %s",
		of(bytes), of(p.stats.Reserved), of(p.stats.Used), of(p.heap.reserved), of(p.heap.capacity))
	if err := p.heap.machine; err != nil {
		text += "; the machine has no more: " + err.Error()
		p.heap.machine = nil
	}
	return fault(m, driver.OutOfMemory, text)
}

// allocate takes bytes from p for a block that begins its life with operation
// seq of s, or, if s is nil, in no stream's order. The device's lock is held.
func (d *Device) allocate(m *method, p *pool, bytes uint64, s *stream) (ptr uint64, err error) {
	if bytes == 0 {
		return 0, fault(m, driver.InvalidValue, "zero bytes: ask for at least one")
	}
	p.heap.Lock()
	defer p.heap.Unlock()
	if d.faults.memory.due() {
		return 0, fault(m, driver.OutOfMemory, "injected by OutOfMemoryAt")
	}
	n := p.alloc(bytes, s)
	if n == nil {
		return 0, outOfMemory(m, bytes, p)
	}
	n.blk = &block{ptr: n.addr, bytes: bytes, slot: hostSlot}
	if s != nil {
		d.mark(s, false)
		n.blk.stream, n.blk.slot, n.blk.seq = s.handle, s.slot, s.seq
	}
	return n.addr, nil
}

// MemAllocAsync allocates bytes from a pool in the order of s. The address is
// chosen at the call; it is aligned to 256 bytes. It does not block.
func (d *Device) MemAllocAsync(bytes uint64, h driver.Pool, s driver.Stream) (ptr uint64, err error) {
	st, err := d.lockStream(mMemAllocAsync, s)
	if err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	if err := st.prohibited(mMemAllocAsync); err != nil {
		return 0, err
	}
	p, err := d.pools.named(mMemAllocAsync, h)
	if err != nil {
		return 0, err
	}
	return d.allocate(mMemAllocAsync, p, bytes, st)
}

// MemFreeAsync frees a block in the order of s. It does not block.
func (d *Device) MemFreeAsync(ptr uint64, s driver.Stream) error {
	st, err := d.lockStream(mMemFreeAsync, s)
	if err != nil {
		return err
	}
	defer d.mu.Unlock()
	if err := st.prohibited(mMemFreeAsync); err != nil {
		return err
	}
	d.memory.Lock()
	defer d.memory.Unlock()
	n := d.memory.live(ptr)
	if n == nil {
		return badPointer(mMemFreeAsync, ptr)
	}
	d.mark(st, false)
	st.pruneFrees()
	st.frees.push(pendingFree{st.seq, n.blk.bytes})
	d.memory.bury(d, n, st.now(), st)
	return nil
}

// bury ends a block's life: in the oracle's books and in its pool's. A nil s
// means that all work of the device is done.
func (h *heap) bury(d *Device, n *node, free stamp, s *stream) {
	var by driver.Stream
	if s != nil {
		by = s.handle
	}
	if !n.blk.freed { // or its end was told before
		d.retire(n.blk, free, by)
		h.history.add(n.blk, d.indirect.Load() == 0)
	}
	n.pool.release(n, s, free.seq)
}

// MemAlloc allocates bytes in no stream's order. It does not block here.
func (d *Device) MemAlloc(bytes uint64) (ptr uint64, err error) {
	if err := d.begin(mMemAlloc); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	return d.allocate(mMemAlloc, d.direct, bytes, nil)
}

// MemFree frees a block of MemAlloc or MemAllocAsync. It blocks until all work
// of the device is done.
func (d *Device) MemFree(ptr uint64) error {
	if err := d.enter(mMemFree); err != nil {
		return err
	}
	return d.freeBlocking(mMemFree, d.memory, ptr)
}

// freeBlocking frees a block when all work that was queued is done.
func (d *Device) freeBlocking(m *method, h *heap, ptr uint64) error {
	if !h.isLive(ptr) {
		return badPointer(m, ptr)
	}
	if err := d.synchronizeAll(m); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.state(m); err != nil {
		return err
	}
	h.Lock()
	defer h.Unlock()
	n := h.live(ptr)
	if n == nil {
		return badPointer(m, ptr)
	}
	d.collect()
	h.bury(d, n, stamp{slot: hostSlot, past: d.hostClock.clone()}, nil)
	h.releaseAtSync()
	return nil
}

func (h *heap) isLive(ptr uint64) bool {
	h.Lock()
	defer h.Unlock()
	return h.live(ptr) != nil
}

func badPointer(m *method, ptr uint64) error {
	return fault(m, driver.InvalidValue, hex(ptr)+" is not the start of a live block")
}

// HostAlloc allocates memory of the machine that kernels reach too. It lies
// outside Go's heap and is not zeroed. It does not block.
func (d *Device) HostAlloc(bytes uint64) (driver.HostMemory, error) {
	if err := d.begin(mHostAlloc); err != nil {
		return driver.HostMemory{}, err
	}
	defer d.mu.Unlock()
	ptr, err := d.allocate(mHostAlloc, d.pinned, bytes, nil)
	if err != nil {
		return driver.HostMemory{}, err
	}
	return driver.HostMemory{Bytes: d.host.arena.bytes(ptr, bytes), DevicePtr: ptr}, nil
}

// HostFree frees memory of HostAlloc, which must not be touched afterwards. It
// blocks until all work of the device is done.
func (d *Device) HostFree(m driver.HostMemory) error {
	if err := d.enter(mHostFree); err != nil {
		return err
	}
	return d.freeBlocking(mHostFree, d.host, m.DevicePtr)
}
