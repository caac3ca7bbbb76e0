package sim

import "github.com/fencepost-gpu/fencepost/cuda/driver"

// node is a stretch of a pool's memory, either one block or free. The nodes
// of a pool tile its granules; prev and next are the nodes of the same pool
// that touch it.
type node struct {
	addr, size uint64
	pool       *pool
	prev, next *node
	free       bool
	blk        *block // what lives here, nil if free
	// held is what is mapped here, at reserved addresses; such a node has no
	// pool, and is free until the device may access it.
	held *physical
	// carving is the blocks that were cut out of what is mapped here.
	carving carving

	// Of a free node: the free that it waits for (by == nil: none), how
	// recently that was, and its place in the bins.
	by       *stream
	seq      uint64
	recency  uint64
	up, down *node
	bin      int
	group    int
}

func (n *node) end() uint64 { return n.addr + n.size }

// ready reports whether the device has passed the free.
func (n *node) ready() bool { return n.by == nil || n.by.done.Load() >= n.seq }

// passed reports whether any stream may take the node: the device has passed
// the free and the pool may look, or the host has synchronised with it.
func (n *node) passed() bool {
	if n.pool.disabled&driver.ReuseOpportunistic != 0 && n.by != nil {
		return n.pool.heap.hostKnows(n.by.slot, n.seq)
	}
	return n.ready()
}

// reusableBy is the rule of stream-ordered reuse: any stream may take the
// node, or s is ordered after the free. A nil s is memory in no stream's
// order.
func (n *node) reusableBy(s *stream) bool {
	if n.passed() {
		return true
	}
	if s == nil || n.pool.disabled&driver.ReuseFollowEvents != 0 && n.by.slot != s.slot {
		return false
	}
	return s.orderedAfter(n.by.slot, n.seq)
}

// groupOf is where a free node is kept: with the others that wait for the
// same stream, so that its own stream finds it at once.
func groupOf(by *stream) int {
	if by == nil {
		return 0
	}
	return by.slot + 1
}
