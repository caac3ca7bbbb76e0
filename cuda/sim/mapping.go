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
	i, ok := h.arena.starts.floor((ptr + bytes - 1 - h.arena.base) / unit)
	return !ok || h.nodes[h.arena.base+i*unit].end() <= ptr
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
		if n.held.lives++; n.held.lives > 1 {
			// What nobody can have meant.
			fillPattern(h.arena.bytes(n.addr, n.size), ((n.addr+n.held.lives)|1)*0x9e3779b97f4a7c15)
		}
		n.free, n.blk = false, &block{ptr: n.addr, bytes: n.size, slot: hostSlot, in: in, born: born, stripes: make([]shadow, stripeCount)}
	}
	h.arena.expose(ptr, bytes)
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
