package sim

import (
	"slices"
	"sync"
)

// heap hands out the memory of one arena to the pools that share it. Its lock
// is taken after the device's and before a block's.
type heap struct {
	sync.Mutex
	arena    *arena
	capacity uint64
	reserved uint64
	machine  error // why the newest reserve got no memory of the machine
	recency  uint64
	nodes    map[uint64]*node // every node by its address
	pools    []*pool
	spare    *node // nodes to use again, linked by next
	history  history
	// addresses are those of MemReserve, of the heap of mapped memory.
	addresses reservations
	// hostKnows reports whether the host has seen an operation done; the
	// device's lock is held.
	hostKnows func(slot int, seq uint64) bool
}

func newHeap(a *arena, capacity uint64) *heap {
	return &heap{arena: a, capacity: capacity, nodes: make(map[uint64]*node)}
}

func (h *heap) addNode(p *pool, addr, size uint64) *node {
	n := h.spare
	if n == nil {
		n = new(node)
	} else {
		h.spare = n.next
	}
	*n = node{addr: addr, size: size, pool: p}
	h.nodes[addr] = n
	h.arena.starts.set((addr - h.arena.base) / h.arena.step)
	return n
}

func (h *heap) dropNode(n *node) {
	delete(h.nodes, n.addr)
	h.arena.starts.clear((n.addr - h.arena.base) / h.arena.step)
	*n = node{next: h.spare}
	h.spare = n
}

// nodeAt returns the node that holds addr, nil if none does.
func (h *heap) nodeAt(addr uint64) *node {
	if !h.arena.contains(addr, 1) {
		return nil
	}
	i, ok := h.arena.starts.floor((addr - h.arena.base) / h.arena.step)
	if !ok {
		return nil
	}
	if n := h.nodes[h.arena.base+i*h.arena.step]; addr < n.end() {
		return n
	}
	return nil
}

// blockAt returns the live block that holds addr, nil if none does, whatever of it the program has.
func (h *heap) blockAt(addr uint64) *block {
	b, _ := h.meant(addr, wholly)
	return b
}

// meantAt is the live block that an operation of this number means by an address, nil if none.
func (h *heap) meantAt(addr, number uint64) *block {
	b, _ := h.meant(addr, number)
	return b
}

// goneAt is the block that held addr before it was freed, or that a layer keeps after its owner's
// free. It is nil if none is remembered, and if addr lies in padding of a live block.
func (h *heap) goneAt(addr, number uint64) *block {
	if b := h.blockAt(addr); b != nil && b.hasOwner() {
		if b.isLate(number) {
			return b
		}
		return nil
	}
	return h.history.last(addr, anyBlock)
}

// live returns the node of the live block that begins at ptr, nil if none.
func (h *heap) live(ptr uint64) *node {
	if n := h.nodes[ptr]; n != nil && !n.free {
		return n
	}
	return nil
}

// reserve maps granules for size bytes into p and returns them as a free
// node, joined with neighbours that the device has passed.
func (h *heap) reserve(p *pool, size uint64) *node {
	size = roundUp(size, Granule)
	if p.max != 0 && p.stats.Reserved+size > roundUp(p.max, Granule) {
		return nil
	}
	if h.reserved+size > h.capacity {
		for _, other := range h.pools {
			other.trim(0)
		}
	}
	if h.reserved+size > h.capacity {
		return nil
	}
	addr, ok := h.arena.findGranules(int(size / Granule))
	if !ok {
		return nil
	}
	if h.machine = h.arena.setMapped(addr, size); h.machine != nil {
		return nil
	}
	h.reserved += size
	p.setReserved(p.stats.Reserved + size)
	n := h.addNode(p, addr, size)
	n.free = true
	h.link(n)
	p.push(n)
	return p.mergeAround(n, nil)
}

// link finds the nodes of the same pool that touch a new one.
func (h *heap) link(n *node) {
	if prev := h.nodeAt(n.addr - 1); prev != nil && prev.pool == n.pool {
		n.prev, prev.next = prev, n
	}
	if next := h.nodes[n.end()]; next != nil && next.pool == n.pool {
		n.next, next.prev = next, n
	}
}

// releaseAtSync does what a synchronisation does: pools shrink to their
// release thresholds.
func (h *heap) releaseAtSync() {
	h.pools = slices.DeleteFunc(h.pools, func(p *pool) bool {
		if p.stats.Reserved > p.threshold {
			p.trim(p.threshold)
		}
		return p.destroyed && p.stats.Reserved == 0
	})
}
