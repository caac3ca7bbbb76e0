// Package oracle judges what a fence engine made of a program: whether the
// waits that it queued order all that must be ordered, no wait too many, and
// nothing else. It knows the program's steps and the device's streams, events
// and waits, and no line of the engine: it imports the standard library alone.
//
// A [History] is a graph. Its nodes are what lies on the streams, in the order
// in which the host put it there; its edges are stream order, waits, and what
// the host has learned. One node is ordered after another if a path leads
// there, and whatever order a device runs the nodes in, it keeps to that.
package oracle

import (
	"math"
	"slices"
)

// Kind is what a node is.
type Kind uint8

// The kinds of nodes.
const (
	// Begin is where a launch was prepared: its waits lie before, its work
	// behind.
	Begin Kind = iota
	// Work is the work of a launch.
	Work
	// End is where a launch was finished.
	End
	// Alloc is an allocation, Free a free.
	Alloc
	Free
	// Wait is a wait of the stream for a node of another.
	Wait
	// Last is the end of a stream: what was allocated there is freed elsewhere,
	// behind it.
	Last
)

// Set is a set of blocks.
type Set uint64

// Cells is a set of places in physical memory.
type Cells uint32

// MaxCells is how many places there are.
const MaxCells = 32

// Node is one entry of a stream.
type Node struct {
	Kind   Kind
	Stream uint8
	// Op numbers the operation that it is of.
	Op int16
	// Block is what an allocation or free is of, Cells where it lies.
	Block uint8
	Cells Cells
	// Near are the free cells, its own included, that an allocator of the host's may
	// treat as one with it: the run in which it was found, or to which it was given. A
	// driver's allocator has none.
	Near Cells
	// Lazy: the free waits for nothing. It is ordered as its stream is, and the allocation that gets its cells
	// comes after it and after all uses of the block.
	Lazy bool
	// Grouped: others were freed by the same call, and the waits of all lie before it.
	Grouped bool
	// Reads and Writes are the uses of a launch, in each of its nodes.
	Reads, Writes Set
	// Aborted: the launch will have no work. Unfenced: the engine was not
	// asked to order it after anything.
	Aborted, Unfenced bool
	// From is the node that a wait is for, -1 for nothing.
	From int32
	// Since is when the call began that queued a wait, a [History.Moment], if
	// others may have added to the history meanwhile; 0 means that none did.
	Since int32
	// Known is, where calls may overlap, the moment when the event that a wait
	// is for was recorded, or when the call of an allocation returned.
	Known int32
	// Until is the last node that was on the stream of an allocation when its
	// call returned, 0 for none behind it.
	Until int32
}

// History is what happened on the streams. It is not safe for concurrent use.
type History struct {
	// FreesWait: frees may put waits on their streams.
	FreesWait bool

	nodes []Node
	// before has a row for each node: all that it is ordered after.
	before rows
	// previous is the node before each on its stream, -1 for none.
	previous []int32
	// last is the newest node of each stream, -1 for none.
	last []int32
	// learned is what the host has seen done, and since when.
	learned []lesson
	// overlapped: calls may have overlapped.
	overlapped bool
	moment     int32
	// blame is the last fault found, in words, if there is one.
	blame string

	demands  []demand
	reuse    reuse
	launches []launch
	scratch  rows
	explorer explorer
}

// lesson: nodes from at on are ordered after node, because the host has seen
// it done. The call that found out had returned at the moment sure.
type lesson struct{ at, node, sure int32 }

// New returns an empty history of so many streams.
func New(streams int) *History {
	h := &History{last: make([]int32, streams)}
	h.Reset()
	return h
}

// Reset makes the history empty.
func (h *History) Reset() {
	h.nodes, h.previous, h.learned, h.demands, h.blame = h.nodes[:0], h.previous[:0], h.learned[:0], h.demands[:0], ""
	h.overlapped, h.moment = false, 0
	h.before.reset()
	for i := range h.last {
		h.last[i] = -1
	}
}

// Len is the number of nodes.
func (h *History) Len() int { return len(h.nodes) }

// Nodes are the nodes, in the order of the host. They must not be changed.
func (h *History) Nodes() []Node { return h.nodes }

// Last is the newest node of a stream, -1 if it has none.
func (h *History) Last(stream uint8) int32 { return h.last[stream] }

// Add puts a node on its stream and returns its number.
func (h *History) Add(n Node) int32 {
	at := int32(len(h.nodes))
	if n.Kind != Wait {
		n.From = -1
	}
	h.overlapped = h.overlapped || n.Since != 0
	h.nodes, h.previous = append(h.nodes, n), append(h.previous, h.last[n.Stream])
	h.before.grow(len(h.nodes))
	h.order(&h.before, &h.before, at, n.From)
	h.last[n.Stream] = at
	return at
}

// order fills the row of node at in r: after its predecessor, after from, and
// after what the host knew, each with its row in known.
func (h *History) order(r, known *rows, at, from int32) {
	r.clear(at)
	r.joinOf(known, at, h.previous[at])
	r.joinOf(known, at, from)
	h.joinLearned(r, known, at, at)
}

// joinLearned adds to a row what the host knew when node then was added.
func (h *History) joinLearned(r, known *rows, row, then int32) {
	for _, l := range h.learned {
		if l.at <= then {
			r.joinOf(known, row, l.node)
		}
	}
}

// Learn says that the host has seen a node done, and with it all that it is
// ordered after.
func (h *History) Learn(node int32) {
	if node < 0 {
		return
	}
	if h.IsKnown(node) {
		return
	}
	h.learned = append(h.learned, lesson{int32(len(h.nodes)), node, math.MaxInt32})
}

// Lessons is how many times Learn told of something new.
func (h *History) Lessons() int { return len(h.learned) }

// Sure says that the call which learned a lesson returned only now. A wait of a
// call that began before need not have known of it.
func (h *History) Sure(lesson int) { h.learned[lesson].sure = h.Moment() }

// Return says that the call of an allocation returns now.
func (h *History) Return(alloc int32) {
	n := &h.nodes[alloc]
	n.Known, n.Until = h.Moment(), h.last[n.Stream]
}

// Moment is a number larger than all before.
func (h *History) Moment() int32 {
	h.moment++
	return h.moment
}

// Ordered reports whether node then comes after node first.
func (h *History) Ordered(first, then int32) bool { return h.before.has(then, first) }

// After reports whether what is put on the stream next is ordered after node.
func (h *History) After(stream uint8, node int32) bool {
	return h.reaches(h.last[stream], node) || h.IsKnown(node)
}

// IsKnown reports whether the host has seen a node done.
func (h *History) IsKnown(node int32) bool { return h.knewBy(math.MaxInt32, node) }

// knewBy is IsKnown when a node was added.
func (h *History) knewBy(then, node int32) bool {
	return slices.ContainsFunc(h.learned, func(l lesson) bool { return l.at <= then && h.reaches(l.node, node) })
}

// reaches reports whether a node, if it is one, is first or comes after it.
func (h *History) reaches(node, first int32) bool {
	return node == first || node >= 0 && h.before.has(node, first)
}
