package sim

import "github.com/fencepost-gpu/fencepost/cuda/driver"

// MemMap puts memory at reserved addresses, where nobody may touch it yet. It
// does not block.
func (d *Device) MemMap(ptr, bytes uint64, mh driver.MemHandle) error {
	h, unlock, err := d.lockMapped(mMemMap)
	if err != nil {
		return err
	}
	defer unlock()
	p := d.created.get(uint64(mh))
	if p == nil {
		return badMemory(mMemMap, mh)
	}
	n := h.nodes[ptr]
	switch {
	case n == nil || n.size != bytes || n.held != nil:
		return badRange(mMemMap, ptr, bytes, "a reserved range with nothing mapped there")
	case p.bytes != bytes:
		return badRange(mMemMap, ptr, bytes, "as long as the memory")
	case p.consumed:
		return fault(mMemMap, driver.NotSupported, "memory can be mapped once in its life here")
	}
	n.held, p.mapped, p.consumed = p, true, true
	return nil
}

// MemAccess lets the device at a mapped range. It does not block.
func (d *Device) MemAccess(ptr, bytes uint64) error {
	h, unlock, err := d.lockMapped(mMemAccess)
	if err != nil {
		return err
	}
	defer unlock()
	n := h.nodes[ptr]
	if n == nil || n.size != bytes || n.held == nil {
		return badRange(mMemAccess, ptr, bytes, "mapped as a whole")
	}
	if n.free {
		if err := h.arena.setMapped(ptr, bytes); err != nil {
			return fault(mMemAccess, driver.OutOfMemory, "the machine has no more: "+err.Error())
		}
		n.free, n.blk = false, &block{ptr: ptr, bytes: bytes, slot: hostSlot, mapping: true}
	}
	return nil
}

// MemUnmap takes a mapped range from its addresses. It neither blocks nor
// waits: the oracle judges it as a free by the host, ordered after what the
// host has seen done.
func (d *Device) MemUnmap(ptr, bytes uint64) error {
	h, unlock, err := d.lockMapped(mMemUnmap)
	if err != nil {
		return err
	}
	defer unlock()
	n := h.nodes[ptr]
	if n == nil || n.size != bytes || n.held == nil {
		return badRange(mMemUnmap, ptr, bytes, "mapped as a whole")
	}
	if !n.free {
		d.collect()
		d.retire(n.blk, stamp{slot: hostSlot, past: d.hostClock.clone()}, 0)
		h.history.add(n.blk)
		h.arena.unmap(ptr, bytes)
		n.free, n.blk = true, nil
	}
	p := n.held
	n.held, p.mapped = nil, false
	d.giveBack(p)
	return nil
}
