package sim

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

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
	// Joining what the device has passed costs nothing; joining more
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

// joinFor makes one node of two that s may both reuse. If either is still
// pending, s has just taken both: other streams must be ordered after what s
// has enqueued so far.
func (p *pool) joinFor(a, b *node, s *stream) *node {
	if a.passed() && b.passed() {
		return p.join(a, b, nil, 0)
	}
	return p.join(a, b, s, s.seq)
}

// mergeAround joins a free node with those neighbours that s may reuse.
func (p *pool) mergeAround(n *node, s *stream) *node {
	for prev := n.prev; prev != nil && prev.free && prev.reusableBy(s); prev = n.prev {
		n = p.joinFor(prev, n, s)
	}
	for next := n.next; next != nil && next.free && next.reusableBy(s); next = n.next {
		n = p.joinFor(n, next, s)
	}
	return n
}

// consolidate joins all touching free nodes that s may reuse (nil: that the
// device has passed). It looks at every free node, so it runs only before the
// pool would grow or shrink.
func (p *pool) consolidate(s *stream) {
	p.unmerged = 0
	for _, n := range p.freeNodes(0) {
		// A node that was joined into another is no longer in the heap.
		if p.heap.nodes[n.addr] != n || !n.free {
			continue
		}
		if n.reusableBy(s) {
			n = p.mergeAround(n, s)
		}
		if n.next != nil && n.next.free {
			p.unmerged++
		}
	}
}

func (p *pool) freeNodes(fromBin int) (list []*node) {
	for _, b := range p.groups {
		list = b.appendFrom(fromBin, list)
	}
	return list
}

// trim gives granules that are free and passed by the device back until the
// pool holds at most keep bytes.
func (p *pool) trim(keep uint64) {
	if p.unmerged > 0 {
		p.consolidate(nil)
	}
	for _, n := range p.freeNodes(binOf(Granule)) {
		if p.stats.Reserved <= keep {
			return
		}
		if n.ready() {
			p.giveBack(n, roundUp(p.stats.Reserved-keep, Granule))
		}
	}
}

// giveBack unmaps the highest whole granules of a free node, at most limit
// bytes of them.
func (p *pool) giveBack(n *node, limit uint64) {
	low, high := roundUp(n.addr, Granule), n.end()&^(Granule-1)
	if low >= high {
		return
	}
	low = max(low, high-min(limit, high-low))
	p.pull(n)
	if tail := p.cut(n, high); tail != nil {
		p.push(tail)
	}
	if below := n; below.addr < low {
		n = p.cut(below, low)
		p.push(below)
	}
	if n.prev != nil {
		n.prev.next = nil
	}
	if n.next != nil {
		n.next.prev = nil
	}
	p.heap.dropNode(n)
	p.heap.arena.unmap(low, high-low)
	p.heap.reserved -= high - low
	p.stats.Reserved -= high - low
}

// lockPool locks the device and the memory; unlock undoes it.
func (d *Device) lockPool(m *method, h driver.Pool) (p *pool, unlock func(), err error) {
	if p, err = lockNamed(d, m, &d.pools, h); err != nil {
		return nil, nil, err
	}
	d.memory.Lock()
	return p, func() { d.memory.Unlock(); d.mu.Unlock() }, nil
}

// PoolCreate makes a pool. It holds no memory at first. Disabling
// ReuseInternalDependencies changes nothing: no pool here makes a stream wait.
func (d *Device) PoolCreate(c driver.PoolConfig) (driver.Pool, error) {
	if err := d.begin(mPoolCreate); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	if unknown := c.Disable &^ driver.ReuseAll; unknown != 0 {
		return 0, fault(mPoolCreate, driver.InvalidValue, fmt.Sprintf("reuse policies %#x to disable do not exist", uint8(unknown)))
	}
	d.memory.Lock()
	defer d.memory.Unlock()
	return d.pools.put(d.memory.newPool(c)), nil
}

// PoolDestroy gives the handle back. What the pool holds goes back to the
// device as its blocks are freed. The default pool cannot be destroyed.
func (d *Device) PoolDestroy(h driver.Pool) error {
	if h == 0 {
		d.calls[mPoolDestroy.index].n.Add(1)
		return fault(mPoolDestroy, driver.InvalidValue, "the default pool cannot be destroyed")
	}
	p, unlock, err := d.lockPool(mPoolDestroy, h)
	if err != nil {
		return err
	}
	defer unlock()
	_, _ = d.pools.take(mPoolDestroy, h)
	p.destroyed, p.threshold = true, 0
	p.trim(0)
	return nil
}

// PoolStats reads the pool's attributes.
func (d *Device) PoolStats(h driver.Pool) (driver.PoolStats, error) {
	p, unlock, err := d.lockPool(mPoolStats, h)
	if err != nil {
		return driver.PoolStats{}, err
	}
	defer unlock()
	return p.stats, nil
}

// PoolTrim gives granules that no block lies in and whose frees the device has
// passed back, until the pool holds at most keep bytes.
func (d *Device) PoolTrim(h driver.Pool, keep uint64) error {
	p, unlock, err := d.lockPool(mPoolTrim, h)
	if err != nil {
		return err
	}
	defer unlock()
	p.trim(keep)
	return nil
}
