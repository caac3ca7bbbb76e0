package oracle

import (
	"fmt"
	"math/bits"
)

// demand is an order that there must be.
type demand struct{ first, then int32 }

// launch is the nodes of one launch that matter to the others.
type launch struct {
	begin, end int32 // -1 for none (yet)
	node       *Node
}

// demand lists the orders that stream order and declared conflicts demand:
//
//   - a launch comes after the allocation of each of its blocks;
//   - a launch that was prepared when a conflicting one had ended comes after
//     that one;
//   - a free comes after the allocation and after every launch over the block,
//     and after the end of the stream of the allocation, if that was given up; a lazy one need not
//     come after launches;
//   - an allocation comes after the free of every block that lay in its memory, and if that is
//     lazy after every launch over the block.
//
// It returns how many rules of the host were broken: conflicting launches of
// two streams that were open at once, a free with a launch open, and memory of two live blocks. Launches
// that were aborted, and uses that the engine was not asked to order, come
// after nothing; soft asks for what the aborted were ordered after, too.
func (h *History) demand(soft bool) (broken int) {
	h.demands = h.demands[:0]
	h.reuse.reset(h.before.width)
	launches := h.launches[:0]
	var alloc [MaxBlocks]int32
	for i := range h.nodes {
		n, at := &h.nodes[i], int32(i)
		switch n.Kind {
		case Alloc:
			alloc[n.Block] = at
			broken += h.demandReuse(n, at)
		case Begin:
			if !n.Unfenced && (!n.Aborted || soft) {
				broken += h.demandBegin(n, at, alloc[:], launches)
			}
			launches = append(launches, launch{at, -1, n})
		case End:
			for j := range launches {
				if launches[j].node.Op == n.Op {
					launches[j].end = at
				}
			}
		case Free:
			h.demandLast(at, alloc[n.Block])
			broken += h.demandFree(n, at, alloc[n.Block], launches)
			h.noteFree(n, at, launches)
		}
	}
	h.launches = launches
	return broken
}

func (h *History) demandBegin(n *Node, at int32, alloc []int32, launches []launch) (broken int) {
	for uses := n.Reads | n.Writes; uses != 0; uses &= uses - 1 {
		h.ask(alloc[bits.TrailingZeros64(uint64(uses))], at)
	}
	for _, l := range launches {
		if l.node.Aborted || !conflict(n, l.node) {
			continue
		}
		if l.end >= 0 {
			h.ask(l.end, at)
		} else if l.node.Stream != n.Stream && !n.Aborted {
			h.blamef("operations %d and %d conflict and were open at once", l.node.Op, n.Op)
			broken++
		}
	}
	return broken
}

func (h *History) demandFree(n *Node, at, alloc int32, launches []launch) (broken int) {
	h.ask(alloc, at)
	for _, l := range launches {
		if l.node.Aborted || (l.node.Reads|l.node.Writes)>>n.Block&1 == 0 {
			continue
		}
		switch {
		case l.end >= 0 && n.Lazy:
		case l.end >= 0:
			h.ask(l.end, at)
		default:
			h.blamef("block %d was freed while operation %d was open", n.Block, l.node.Op)
			broken++
		}
	}
	return broken
}

// demandLast asks for the end of the stream of the allocation, if it has come.
func (h *History) demandLast(free, alloc int32) {
	for i := range free {
		if n := &h.nodes[i]; n.Kind == Last && n.Stream == h.nodes[alloc].Stream {
			h.ask(i, free)
		}
	}
}

// ask demands that then comes after first.
func (h *History) ask(first, then int32) { h.demands = append(h.demands, demand{first, then}) }

func conflict(a, b *Node) bool { return a.Writes&(b.Reads|b.Writes) != 0 || a.Reads&b.Writes != 0 }

func (h *History) blamef(format string, args ...any) {
	if h.blame == "" {
		h.blame = fmt.Sprintf(format, args...)
	}
}
