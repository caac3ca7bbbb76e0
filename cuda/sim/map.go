package sim

import (
	"fmt"
	"slices"
	"sort"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/size"
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
		a, err := newArena(mapBase+uint64(d.config.Ordinal)*deviceSpan, span/vaFactor, Granule)
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
		of := size.Figures(bytes, left)
		return 0, fault(mMemCreate, driver.OutOfMemory,
			fmt.Sprintf("%s asked for; %s of the device are left beside pools and handles", of(bytes), of(left)))
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

// reservation is a range of addresses of MemReserve.
type reservation struct {
	ptr, bytes uint64
	mappings   int // that lie in it
	// carved: blocks are cut out of the mappings.
	carved bool
}

func (r *reservation) end() uint64 { return r.ptr + r.bytes }

// reservations are those of a heap, in the order of their addresses.
type reservations struct {
	list   []*reservation
	cursor uint64 // where the newest ends
}

// behind is the place in the list of the first reservation that begins above
// addr.
func (rs *reservations) behind(addr uint64) int {
	return sort.Search(len(rs.list), func(i int) bool { return rs.list[i].ptr > addr })
}

// holding returns the reservation in which all of [ptr, ptr+bytes) lies, nil if
// there is none.
func (rs *reservations) holding(ptr, bytes uint64) *reservation {
	i := rs.behind(ptr)
	if i == 0 {
		return nil
	}
	if r := rs.list[i-1]; bytes <= r.bytes && ptr-r.ptr <= r.bytes-bytes {
		return r
	}
	return nil
}

// room finds addresses in a that are not reserved: above those that were handed
// out last, and below only if there are none.
func (rs *reservations) room(a *arena, bytes uint64) (uint64, bool) {
	for _, from := range [...]uint64{rs.cursor, a.base} {
		i := rs.behind(from)
		if i > 0 {
			from = max(from, rs.list[i-1].end())
		}
		for ; i < len(rs.list) && rs.list[i].ptr-from < bytes; i++ {
			from = rs.list[i].end()
		}
		if bytes <= a.limit-from {
			return from, true
		}
	}
	return 0, false
}

// MemReserve reserves addresses. It does not block.
func (d *Device) MemReserve(bytes uint64) (uint64, error) {
	h, unlock, err := d.lockMapped(mMemReserve)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if bytes == 0 || bytes%Granule != 0 {
		return 0, badSize(mMemReserve, bytes)
	}
	rs := &h.addresses
	ptr, ok := rs.room(h.arena, bytes)
	if !ok {
		return 0, fault(mMemReserve, driver.OutOfMemory, fmt.Sprintf("no %d addresses in a row are left", bytes))
	}
	rs.list = slices.Insert(rs.list, rs.behind(ptr), &reservation{ptr: ptr, bytes: bytes})
	rs.cursor = ptr + bytes
	return ptr, nil
}

// MemUnreserve gives addresses back. It does not block.
func (d *Device) MemUnreserve(ptr, bytes uint64) error {
	h, unlock, err := d.lockMapped(mMemUnreserve)
	if err != nil {
		return err
	}
	defer unlock()
	rs := &h.addresses
	r := rs.holding(ptr, bytes)
	if r == nil || r.ptr != ptr || r.bytes != bytes || r.mappings > 0 {
		return badRange(mMemUnreserve, ptr, bytes, "a reserved range with nothing mapped there")
	}
	i := rs.behind(ptr)
	rs.list = slices.Delete(rs.list, i-1, i)
	return nil
}

// MemMap puts memory at reserved addresses, where it must not be touched yet. It
// does not block.
func (d *Device) MemMap(ptr, bytes uint64, mh driver.MemHandle) error {
	h, unlock, err := d.lockMapped(mMemMap)
	if err != nil {
		return err
	}
	defer unlock()
	p, err := d.created.named(mMemMap, mh)
	if err != nil {
		return err
	}
	r := h.addresses.holding(ptr, bytes)
	switch {
	case p.bytes != bytes:
		return badRange(mMemMap, ptr, bytes, "as long as the memory")
	case r == nil || ptr%Granule != 0:
		return badRange(mMemMap, ptr, bytes, "whole granules of a reserved range")
	case !h.vacant(ptr, bytes):
		return badRange(mMemMap, ptr, bytes, "a range with nothing mapped there")
	case p.at != 0:
		return fault(mMemMap, driver.InvalidValue, "the memory is mapped at "+hex(p.at)+", and can be at one place at a time here")
	}
	n := h.addNode(nil, ptr, bytes)
	n.free, n.held = true, p
	p.at = ptr
	r.mappings++
	return nil
}

// vacant reports whether nothing is mapped at [ptr, ptr+bytes).
func (h *heap) vacant(ptr, bytes uint64) bool {
	i, ok := h.arena.starts.floor((ptr + bytes - 1 - h.arena.base) / h.arena.step)
	return !ok || h.nodes[h.arena.base+i*h.arena.step].end() <= ptr
}

// mappings returns the mappings that together are [ptr, ptr+bytes), and the
// reservation that they lie in. There are none if one reaches over a bound, or
// one is missing.
func (h *heap) mappings(m *method, ptr, bytes uint64) (list []*node, in *reservation, err error) {
	in = h.addresses.holding(ptr, bytes)
	for at := ptr; in != nil && at < ptr+bytes; {
		n := h.nodes[at]
		if n == nil || n.size > ptr+bytes-at {
			list = nil
			break
		}
		list = append(list, n)
		at = n.end()
	}
	if len(list) == 0 {
		return nil, nil, badRange(m, ptr, bytes, "one mapping or several whole ones of one reserved range")
	}
	return list, in, nil
}

// MemAccess lets the device at mapped memory. It does not block. What was mapped
// before holds no bytes that mean anything.
func (d *Device) MemAccess(ptr, bytes uint64) error {
	h, unlock, err := d.lockMapped(mMemAccess)
	if err != nil {
		return err
	}
	defer unlock()
	list, in, err := h.mappings(mMemAccess, ptr, bytes)
	if err != nil {
		return err
	}
	if err := h.arena.commit(ptr, bytes); err != nil {
		return fault(mMemAccess, driver.OutOfMemory, "the machine has no more: "+err.Error())
	}
	born := d.enqueued()
	for _, n := range list {
		if !n.free {
			continue
		}
		n.free, n.blk = false, &block{ptr: n.addr, bytes: n.size, slot: hostSlot, in: in, born: born, striped: true}
		if n.held.lives++; n.held.lives > 1 {
			h.arena.exposeStale(n.addr, n.size, ((n.addr+n.held.lives)|1)*0x9e3779b97f4a7c15)
		} else {
			h.arena.expose(n.addr, n.size)
		}
	}
	return nil
}

// enqueued is how far each stream's calls have come, whatever has run; the
// device's lock is held.
func (d *Device) enqueued() vec {
	v := make(vec, len(d.slots.owners))
	for i, s := range d.slots.owners {
		v[i] = s.seq
	}
	return v
}

// MemUnmap takes mapped memory from its addresses. It neither blocks nor waits:
// the oracle judges it as a free by the host, ordered after what the host has
// seen done.
func (d *Device) MemUnmap(ptr, bytes uint64) error {
	h, unlock, err := d.lockMapped(mMemUnmap)
	if err != nil {
		return err
	}
	defer unlock()
	list, in, err := h.mappings(mMemUnmap, ptr, bytes)
	if err != nil {
		return err
	}
	d.collect()
	end, ended := stamp{slot: hostSlot, past: d.hostClock.clone()}, d.enqueued()
	for _, n := range list {
		if !n.free {
			n.blk.ended = ended
			if n.isCarved() {
				d.uncover(n, end)
			} else {
				d.retire(n.blk, end, 0)
				h.history.add(n.blk, d.indirect.Load() == 0)
			}
			h.arena.unmap(n.addr, n.size)
		}
		p := n.held
		p.at = 0
		d.giveBack(p)
		h.dropNode(n)
		in.mappings--
	}
	return nil
}
