package oracle

import (
	"math/bits"
	"slices"
)

// Plan makes a history as an engine must: given the steps of a program, it says which
// waits each must have, and queues them. What it says follows from the demands and
// from the order that there is, without any clock: of all that a node must come
// after it takes what nothing orders yet, and of that what no other wait brings.
//
// It is for steps that follow each other. The ready points of allocations are where
// docs/memory-model.md says: allocations share one until something else is put on
// their stream or a use on another stream names it.
type Plan struct {
	*History
	alloc  [MaxBlocks]int32
	opened []opened
	// point is by block the node that stands for its allocation, -1 if that is not
	// decided: then it is whatever is newest on the stream.
	point [MaxBlocks]int32
	// shared are, by stream, the blocks whose point is not decided.
	shared []Set
	needs  []Need
}

// undecided is in place of a point.
const undecided = -1

// opened is a launch that has begun, or a use: end is its node, -1 while it is open.
type opened struct {
	node Node
	end  int32
}

// Need is one order that a node must have.
type Need struct {
	// First must come first: an allocation, the end of a launch, or that of a stream.
	First int32
	// By says how it does. From is, for what is waited for, the point in the order
	// of the other stream, and for what another wait brings the point that is
	// waited for.
	By   Means
	From int32
}

// Means is how an order comes about.
type Means uint8

// The means.
const (
	// ByStream: both are on one stream.
	ByStream Means = iota
	// ByOrder: earlier waits have seen to it.
	ByOrder
	// ByHost: the host has seen it done.
	ByHost
	// ByOther: another wait of the same step brings it along.
	ByOther
	// ByWait: it takes a wait.
	ByWait
)

// NewPlan returns a plan of an empty history of so many streams.
func NewPlan(streams int) *Plan {
	return &Plan{History: New(streams), shared: make([]Set, streams)}
}

// Reset makes the history empty.
func (p *Plan) Reset() {
	p.History.Reset()
	p.opened = p.opened[:0]
	clear(p.shared)
}

// Alloc puts an allocation on a stream. While a launch is open there its work may come
// at any moment, so the ready point is decided at once.
func (p *Plan) Alloc(n Node) {
	n.Kind = Alloc
	p.alloc[n.Block], p.point[n.Block] = p.Add(n), undecided
	p.shared[n.Stream] |= 1 << n.Block
	for i := range p.opened {
		if l := &p.opened[i]; l.end < 0 && !l.node.Unfenced && l.node.Stream == n.Stream {
			p.Decide(n.Stream)
		}
	}
}

// Decide places the ready point of a stream's allocations behind what is newest there.
func (p *Plan) Decide(stream uint8) {
	for blocks := p.shared[stream]; blocks != 0; blocks &= blocks - 1 {
		p.point[bits.TrailingZeros64(uint64(blocks))] = p.last[stream]
	}
	p.shared[stream] = 0
}

// pointOf is the node that stands for one that must come first.
func (p *Plan) pointOf(first int32) int32 {
	switch n := &p.nodes[first]; {
	case n.Kind != Alloc:
		return first
	case p.point[n.Block] == undecided:
		return p.last[n.Stream]
	default:
		return p.point[n.Block]
	}
}

// Conflict is the operation of an open launch of another stream that conflicts with
// the one to prepare: that must be refused. It is -1 if there is none.
func (p *Plan) Conflict(n Node) int16 {
	for i := range p.opened {
		if l := &p.opened[i]; l.end < 0 && !l.node.Unfenced && l.node.Stream != n.Stream && conflict(&n, &l.node) {
			return l.node.Op
		}
	}
	return -1
}

// Prepare queues the waits of a launch and puts its beginning on the stream.
func (p *Plan) Prepare(n Node) []Need {
	needs := p.Fence(n)
	n.Kind = Begin
	p.open(n)
	return needs
}

// Fence queues the waits of a launch.
func (p *Plan) Fence(n Node) []Need {
	p.needs = p.needs[:0]
	for uses := n.Reads | n.Writes; uses != 0; uses &= uses - 1 {
		p.need(n.Stream, p.alloc[bits.TrailingZeros64(uint64(uses))])
	}
	for i := range p.opened {
		if l := &p.opened[i]; l.end >= 0 && !l.node.Aborted && conflict(&n, &l.node) {
			p.need(n.Stream, l.end)
		}
	}
	for _, d := range p.needs {
		first := &p.nodes[d.First]
		if first.Kind == Alloc && first.Stream != n.Stream && p.point[first.Block] == undecided && d.By != ByHost {
			p.Decide(first.Stream)
		}
	}
	p.queue(n)
	if p.shared[n.Stream]&^n.Writes != 0 { // else they are ready behind the launch
		p.Decide(n.Stream)
	}
	return p.needs
}

// Fenced notes that a launch ends at what is newest on its stream.
func (p *Plan) Fenced(n Node) {
	p.Decide(n.Stream)
	p.opened = append(p.opened, opened{n, p.last[n.Stream]})
}

// Meet queues a wait of a stream for all that is on another.
func (p *Plan) Meet(stream, other uint8, op int16) {
	p.Decide(other)
	p.Decide(stream)
	p.Add(Node{Kind: Wait, Stream: stream, Op: op, From: p.last[other]})
}

// Allocated is the node of a block's allocation.
func (p *Plan) Allocated(block uint8) int32 { return p.alloc[block] }

// Use puts a use on a stream that the engine is told of afterwards.
func (p *Plan) Use(n Node) {
	n.Kind, n.Unfenced = Begin, true
	p.open(n)
	n.Kind = Work
	p.Add(n)
}

func (p *Plan) open(n Node) {
	p.Add(n)
	p.opened = append(p.opened, opened{n, -1})
}

// End puts the end of a launch, or of a use, on its stream.
func (p *Plan) End(op int16) {
	for i := range p.opened {
		if l := &p.opened[i]; l.node.Op == op && l.end < 0 {
			n := l.node
			n.Kind = End
			l.end = p.Add(n)
			p.Decide(n.Stream)
		}
	}
}

// Abort takes a launch back: nothing comes after it.
func (p *Plan) Abort(op int16) {
	for i := range p.opened {
		if l := &p.opened[i]; l.node.Op == op {
			l.node.Aborted, l.end = true, 0
		}
	}
}

// Users are the operations of the open launches that use a block.
func (p *Plan) Users(block uint8) (ops []int16) {
	for i := range p.opened {
		if l := &p.opened[i]; l.end < 0 && (l.node.Reads|l.node.Writes)>>block&1 != 0 {
			ops = append(ops, l.node.Op)
		}
	}
	return ops
}

// Free puts a free on a stream, and before it the waits of one that may wait. One that may not is put
// there if it needs none: else it is held back, and the needs say until what is completed.
func (p *Plan) Free(n Node, waits bool) (needs []Need, freed bool) {
	n.Kind = Free
	alloc := p.alloc[n.Block]
	p.needs = p.needs[:0]
	p.need(n.Stream, alloc)
	for i := range p.opened {
		if l := &p.opened[i]; l.end >= 0 && !l.node.Aborted && (l.node.Reads|l.node.Writes)>>n.Block&1 != 0 {
			p.need(n.Stream, l.end)
		}
	}
	for i := range p.nodes {
		if last := &p.nodes[i]; last.Kind == Last && last.Stream == p.nodes[alloc].Stream {
			p.need(n.Stream, int32(i))
		}
	}
	p.shared[p.nodes[alloc].Stream] &^= 1 << n.Block // its point cannot be needed any more
	if !waits && slices.ContainsFunc(p.needs, func(d Need) bool { return d.By == ByWait }) {
		return p.needs, false
	}
	p.queue(n)
	p.Add(n)
	return p.needs, true
}

// Last puts the end of a stream on it.
func (p *Plan) Last(n Node) {
	n.Kind = Last
	p.Decide(n.Stream)
	p.Add(n)
}

// need notes that what is put next on a stream must come after a node, and whether
// it does.
func (p *Plan) need(stream uint8, first int32) {
	d := Need{First: first, By: ByWait, From: p.pointOf(first)}
	switch last := p.last[stream]; {
	case p.nodes[first].Stream == stream:
		d.By = ByStream
	case last >= 0 && p.before.has(last, first):
		d.By = ByOrder
	case p.IsKnown(first):
		d.By = ByHost
	}
	p.needs = append(p.needs, d)
}

// queue queues the waits that are needed: those that no other brings.
func (p *Plan) queue(n Node) {
	for i := range p.needs {
		d := &p.needs[i]
		if first := &p.nodes[d.First]; first.Kind == Alloc {
			d.From = p.pointOf(d.First) // decided by now
		}
	}
	for i := range p.needs {
		if d := &p.needs[i]; d.By == ByWait {
			for j := range p.needs {
				if o := &p.needs[j]; o.By == ByWait && j != i && p.brings(o, d) {
					d.By, d.From = ByOther, o.From
					break
				}
			}
		}
	}
	for _, d := range p.needs {
		if d.By == ByWait {
			p.Decide(n.Stream)
			p.Add(Node{Kind: Wait, Stream: n.Stream, Op: n.Op, Aborted: n.Aborted, From: d.From})
		}
	}
}

// brings reports whether a wait for o makes one for d needless.
func (p *Plan) brings(o, d *Need) bool {
	if o.From == d.From { // one wait serves both
		return o.First > d.First
	}
	return p.before.has(o.From, d.First)
}
