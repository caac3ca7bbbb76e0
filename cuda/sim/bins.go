package sim

import (
	"math/bits"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

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

// Free nodes are kept by size class: one class per unit below 16 units, eight
// to each power of two above. Each class is a stack, newest free first.
const (
	exactBins = 16
	binCount  = 320
)

// maxTries bounds the nodes looked at in one class, maxTriesAll in one search.
const (
	maxTries    = 64
	maxTriesAll = 512
)

type bins struct {
	heads    [binCount]*node
	occupied [binCount / 64]uint64
}

func binOf(size uint64) int {
	u := size / unit
	if u < exactBins {
		return int(u)
	}
	power := bits.Len64(u) - 1
	return exactBins + (power-4)*8 + int(u>>(power-3)&7)
}

func (b *bins) push(n *node) {
	n.bin = binOf(n.size)
	n.up, n.down = nil, b.heads[n.bin]
	if n.down != nil {
		n.down.up = n
	}
	b.heads[n.bin] = n
	b.occupied[n.bin/64] |= 1 << (n.bin % 64)
}

func (b *bins) remove(n *node) {
	if n.down != nil {
		n.down.up = n.up
	}
	if n.up != nil {
		n.up.down = n.down
	} else if b.heads[n.bin] = n.down; n.down == nil {
		b.occupied[n.bin/64] &^= 1 << (n.bin % 64)
	}
	n.up, n.down = nil, nil
}

// next returns the first class at or above i that has nodes.
func (b *bins) next(i int) (int, bool) {
	for w := i / 64; w < len(b.occupied); w++ {
		word := b.occupied[w]
		if w == i/64 {
			word &= ^uint64(0) << (i % 64)
		}
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word), true
		}
	}
	return 0, false
}

// find returns the newest node of the smallest class that has size bytes and
// that s may reuse.
func (b *bins) find(size uint64, s *stream) *node {
	total := 0
	for i, ok := b.next(binOf(size)); ok && total < maxTriesAll; i, ok = b.next(i + 1) {
		tries := 0
		for n := b.heads[i]; n != nil && tries < maxTries; n = n.down {
			if n.size >= size && n.reusableBy(s) {
				return n
			}
			tries++
		}
		total += tries
	}
	return nil
}

// appendFrom appends all nodes of the class from and above.
func (b *bins) appendFrom(from int, list []*node) []*node {
	for i, ok := b.next(from); ok; i, ok = b.next(i + 1) {
		for n := b.heads[i]; n != nil; n = n.down {
			list = append(list, n)
		}
	}
	return list
}
