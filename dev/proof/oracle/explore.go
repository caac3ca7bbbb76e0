package oracle

import (
	"math/bits"
	"slices"
)

// explorer runs a history in every order that its streams and waits allow, up
// to the exchange of neighbours that do not touch the same memory: such orders
// leave the same values, so one of them stands for all (a Mazurkiewicz trace).
//
// A step whose conflicting steps to come must all come behind it may go first
// in any order, so it is run alone. Where there is none, every step that is
// ready is tried, and those tried before are kept asleep until a conflicting
// one has run (sleep sets, Godefroid 1996).
type explorer struct {
	h *History
	// clash has a row for each node: the nodes that touch memory that it
	// touches, unless both only read it.
	clash         rows
	reads, writes []Cells
	// want is by node and cell what it must read.
	want [][MaxCells]uint16
	// raced: two nodes that clash are in no order.
	raced  bool
	places [MaxBlocks]Cells
	// lazy are the blocks whose frees are: they live until the next block lies there.
	lazy  Set
	found outcome
}

type outcome struct{ schedules, wrong int }

// memory is what a device holds: by cell, which block lives there and who
// wrote it last.
type memory struct {
	live  [MaxCells]uint8
	value [MaxCells]uint16
}

const (
	noBlock = 0xff
	// MaxBlocks is how many blocks a history may have.
	MaxBlocks = 32
	// maxWrong ends the search: it is bad enough.
	maxWrong = 1
)

// explore returns the number of orders that differ and of those in which
// something was wrong; it stops at the first wrong one.
func (h *History) explore() (schedules, wrong int) {
	x := &h.explorer
	x.h, x.found = h, outcome{}
	x.findPlaces()
	x.findClashes()
	x.expect()
	m := newMemory()
	x.run(make([]uint64, h.before.width), make([]uint64, h.before.width), &m, 0)
	return x.found.schedules, x.found.wrong
}

func newMemory() memory {
	m := memory{}
	for i := range m.live {
		m.live[i] = noBlock
	}
	return m
}

// all yields the cells.
func (c Cells) all(yield func(uint8) bool) {
	for ; c != 0; c &= c - 1 {
		if !yield(uint8(bits.TrailingZeros32(uint32(c)))) {
			return
		}
	}
}

// findPlaces notes where the blocks lie, and which are freed lazily.
func (x *explorer) findPlaces() {
	x.lazy = 0
	for i := range x.h.nodes {
		switch n := &x.h.nodes[i]; {
		case n.Kind == Alloc:
			x.places[n.Block] = n.Cells
		case n.Lazy:
			x.lazy |= 1 << n.Block
		}
	}
}

// at is the cells of some blocks.
func (x *explorer) at(set Set) (cells Cells) {
	for ; set != 0; set &= set - 1 {
		cells |= x.places[bits.TrailingZeros64(uint64(set))]
	}
	return cells
}

// touches returns the cells that a node reads and those that it changes.
func (x *explorer) touches(n *Node) (reads, writes Cells) {
	switch {
	case n.Lazy:
	case n.Kind == Alloc, n.Kind == Free:
		return 0, n.Cells
	case n.Kind == Work:
		return x.at(n.Reads), x.at(n.Writes)
	}
	return 0, 0
}

func (x *explorer) findClashes() {
	h := x.h
	x.clash.like(&h.before)
	clear(x.clash.words)
	x.raced = false
	x.reads, x.writes = x.reads[:0], x.writes[:0]
	for i := range h.nodes {
		reads, writes := x.touches(&h.nodes[i])
		x.reads, x.writes = append(x.reads, reads), append(x.writes, writes)
		if reads|writes == 0 {
			continue
		}
		for j := range i {
			if writes&(x.reads[j]|x.writes[j])|reads&x.writes[j] != 0 {
				x.clash.set(int32(i), int32(j))
				x.clash.set(int32(j), int32(i))
				x.raced = x.raced || !h.before.has(int32(i), int32(j))
			}
		}
	}
}

// expect runs the history in the order of the host, which is the program's,
// and keeps what each work must read.
func (x *explorer) expect() {
	m := newMemory()
	x.want = x.want[:0]
	for i := range x.h.nodes {
		x.want = append(x.want, m.value)
		x.step(&m, int32(i))
	}
}

// step runs a node and reports whether all was well. An allocation leaves a
// value of its own, as if it had written, and a write reads as well: what it
// finds must be what it would have found in the order of the host.
func (x *explorer) step(m *memory, at int32) bool {
	n, value := &x.h.nodes[at], uint16(at)
	well := true
	switch n.Kind {
	case Alloc:
		for c := range n.Cells.all {
			well = well && (m.live[c] == noBlock || x.lazy>>m.live[c]&1 != 0)
			m.live[c], m.value[c] = n.Block, value
		}
	case Free:
		if n.Lazy {
			return true
		}
		for c := range n.Cells.all {
			well = well && m.live[c] == n.Block
			m.live[c] = noBlock
		}
	case Work:
		for uses := n.Reads | n.Writes; uses != 0; uses &= uses - 1 {
			b := uint8(bits.TrailingZeros64(uint64(uses)))
			for c := range x.places[b].all {
				well = well && m.live[c] == b && m.value[c] == x.want[at][c]
				if n.Writes>>b&1 != 0 {
					m.value[c] = value
				}
			}
		}
	}
	return well
}

// run goes on from a state: done has been run, asleep has been tried before.
func (x *explorer) run(done, asleep []uint64, m *memory, steps int) {
	h := x.h
	for ; steps < len(h.nodes); steps++ {
		at := x.alone(done)
		if at < 0 {
			x.branch(done, asleep, m, steps)
			return
		}
		if has(asleep, at) {
			return
		}
		if !x.goes(m, at, done, asleep) {
			return
		}
	}
	x.found.schedules++
}

// alone returns a step that may go first in any order, the newest if there are
// several: that is the order furthest from the host's. -1 if there is none.
func (x *explorer) alone(done []uint64) int32 {
	for i := len(x.h.nodes) - 1; i >= 0; i-- {
		if at := int32(i); !has(done, at) && x.ready(done, at) && (!x.raced || !x.contested(done, at)) {
			return at
		}
	}
	return -1
}

func (x *explorer) ready(done []uint64, at int32) bool {
	for i, word := range x.h.before.row(at) {
		if word&^done[i] != 0 {
			return false
		}
	}
	return true
}

// contested reports whether a conflicting step that was not run need not come
// behind this one.
func (x *explorer) contested(done []uint64, at int32) bool {
	row := x.clash.row(at)
	for i := range x.h.nodes {
		if other := int32(i); has(row, other) && !has(done, other) && !x.h.before.has(other, at) {
			return true
		}
	}
	return false
}

// branch tries every step that is ready.
func (x *explorer) branch(done, asleep []uint64, m *memory, steps int) {
	h := x.h
	asleep = slices.Clone(asleep)
	for i := range h.nodes {
		at := int32(i)
		if has(done, at) || has(asleep, at) || !x.ready(done, at) || x.found.wrong >= maxWrong {
			continue
		}
		next, doneNext, asleepNext := *m, slices.Clone(done), slices.Clone(asleep)
		if x.goes(&next, at, doneNext, asleepNext) {
			x.run(doneNext, asleepNext, &next, steps+1)
		}
		add(asleep, at)
	}
}

// goes runs a node, lets those try again that conflict with it, and reports
// whether all was well.
func (x *explorer) goes(m *memory, at int32, done, asleep []uint64) bool {
	if !x.step(m, at) {
		x.h.blamef("%s reads a wrong value or finds its block dead, in some order", x.h.text(at))
		x.found.wrong++
		x.found.schedules++
		return false
	}
	add(done, at)
	for i, word := range x.clash.row(at) {
		asleep[i] &^= word
	}
	return true
}
