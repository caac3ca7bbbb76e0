package sim

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
