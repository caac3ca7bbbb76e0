package sim

import "github.com/fencepost-gpu/fencepost/cuda/driver"

// pool holds granules of a heap and cuts them into blocks. The heap's lock
// guards it.
type pool struct {
	heap      *heap
	stats     driver.PoolStats
	threshold uint64
	max       uint64 // 0: the device's memory
	disabled  driver.ReusePolicy
	destroyed bool
	groups    []*bins // of free nodes, by groupOf
	// unmerged counts touching free nodes that could not be joined when one
	// of them was freed; while it is zero, consolidate has nothing to find.
	unmerged int
}

func (h *heap) newPool(c driver.PoolConfig) *pool {
	p := &pool{heap: h, threshold: c.ReleaseThreshold, max: c.MaxBytes, disabled: c.Disable}
	h.pools = append(h.pools, p)
	return p
}

func (p *pool) setReserved(n uint64) {
	p.stats.Reserved = n
	p.stats.ReservedHigh = max(p.stats.ReservedHigh, n)
}

func (p *pool) push(n *node) {
	n.group = groupOf(n.by)
	for len(p.groups) <= n.group {
		p.groups = append(p.groups, new(bins))
	}
	p.groups[n.group].push(n)
}

func (p *pool) pull(n *node) { p.groups[n.group].remove(n) }

// alloc takes bytes in the order of s (nil: in no stream's order) and returns
// the node, no longer free; nil if the memory is exhausted.
func (p *pool) alloc(bytes uint64, s *stream) *node {
	if p.max != 0 && (bytes > p.max || p.stats.Used > p.max-bytes) || bytes > p.heap.capacity {
		return nil
	}
	size := roundUp(bytes, unit)
	n := p.find(size, s)
	// Joining what the device has passed costs nobody anything; joining more
	// ties memory that all streams could use to s, so it comes second.
	for _, mayUse := range [...]*stream{nil, s} {
		if n == nil && p.unmerged > 0 {
			p.consolidate(mayUse)
			n = p.find(size, s)
		}
	}
	if n == nil {
		n = p.heap.reserve(p, size)
	}
	if n == nil {
		return nil
	}
	p.pull(n)
	if rest := p.cut(n, n.addr+size); rest != nil {
		p.push(rest)
	}
	n.free, n.by = false, nil
	p.stats.Used += bytes
	p.stats.UsedHigh = max(p.stats.UsedHigh, p.stats.Used)
	return n
}

// find prefers the smallest class, and in it the newest free of any stream:
// memory reused early shows a missing fence.
func (p *pool) find(size uint64, s *stream) (best *node) {
	for _, b := range p.groups {
		n := b.find(size, s)
		if n == nil || best != nil && (n.bin > best.bin || n.bin == best.bin && n.recency < best.recency) {
			continue
		}
		best = n
	}
	return best
}

// cut makes what a node has from addr on a free node of the same past, which the
// caller pushes; nil if that is nothing.
func (p *pool) cut(n *node, addr uint64) *node {
	if n.end() == addr {
		return nil
	}
	rest := p.heap.addNode(p, addr, n.end()-addr)
	rest.free, rest.by, rest.seq, rest.recency = true, n.by, n.seq, n.recency
	n.size -= rest.size
	rest.prev, rest.next = n, n.next
	if rest.next != nil {
		rest.next.prev = rest
	}
	n.next = rest
	return rest
}

// release queues the free of a block: operation seq of s (nil: passed by the
// device already).
func (p *pool) release(n *node, s *stream, seq uint64) {
	p.stats.Used -= n.blk.bytes
	p.heap.recency++
	n.free, n.blk, n.by, n.seq, n.recency = true, nil, s, seq, p.heap.recency
	p.push(n)
	p.mergePassed(n)
}

// mergePassed joins a freed node with its neighbours if the device has passed
// all their frees. Others stay apart: joined, none could be reused before the
// latest free.
func (p *pool) mergePassed(n *node) {
	passed := n.passed()
	if prev := n.prev; prev != nil && prev.free {
		if passed && prev.passed() {
			n = p.join(prev, n, nil, 0)
		} else {
			p.unmerged++
		}
	}
	if next := n.next; next != nil && next.free {
		if passed && next.passed() {
			p.join(n, next, nil, 0)
		} else {
			p.unmerged++
		}
	}
}

// join makes one node of two that touch, waiting for operation seq of by.
func (p *pool) join(a, b *node, by *stream, seq uint64) *node {
	p.pull(a)
	p.pull(b)
	a.size += b.size
	a.recency = max(a.recency, b.recency)
	a.by, a.seq = by, seq
	if a.next = b.next; a.next != nil {
		a.next.prev = a
	}
	p.heap.dropNode(b)
	p.push(a)
	return a
}
