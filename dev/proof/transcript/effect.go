package transcript

import (
	"fmt"
	"strings"

	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
)

// effect is something that a step leads to.
type effect struct {
	text string
	// stream and place are of the point that a wait is for: the letter, and how many
	// nodes lie before it on that stream.
	stream string
	place  int
}

func said(format string, args ...any) effect { return effect{text: fmt.Sprintf(format, args...)} }

// names are what the operations and streams of a history are called.
type names struct {
	operations []string
	streams    map[uint8]string
}

// operation makes a number for something with a name.
func (n *names) operation(name string) int16 {
	n.operations = append(n.operations, name)
	return int16(len(n.operations) - 1)
}

// stream is the letter of a stream. The one without is that on which the runtime
// frees the blocks of streams that were given up.
func (n *names) stream(s uint8) string {
	if name, ok := n.streams[s]; ok {
		return name
	}
	return "the backstop"
}

// since describes the waits and frees that a history has from a node on.
func (n *names) since(h *oracle.History, from int) (found []effect) {
	nodes := h.Nodes()
	for i := from; i < len(nodes); i++ {
		switch node := &nodes[i]; node.Kind {
		case oracle.Wait:
			e := effect{text: fmt.Sprintf("%s waits for nothing", n.stream(node.Stream))}
			if node.From >= 0 {
				of := nodes[node.From].Stream
				e = effect{fmt.Sprintf("%s waits for %s, behind %s", n.stream(node.Stream), n.stream(of), n.behind(nodes, node.From)), n.stream(of), place(nodes, node.From)}
			}
			found = insert(found, e)
		case oracle.Free:
			found = append(found, said("%s is freed on %s", blockName(node.Block), n.stream(node.Stream)))
		}
	}
	return found
}

// insert keeps waits that follow each other in the order of their texts: which is
// queued first does not matter.
func insert(all []effect, e effect) []effect {
	all = append(all, e)
	for i := len(all) - 1; i > 0 && all[i-1].stream != "" && all[i].text < all[i-1].text; i-- {
		all[i-1], all[i] = all[i], all[i-1]
	}
	return all
}

// place is how many nodes lie before one on its stream.
func place(nodes []oracle.Node, at int32) (before int) {
	for i := range nodes[:at] {
		if nodes[i].Stream == nodes[at].Stream {
			before++
		}
	}
	return before
}

// behind names the newest of what lies at or before a point of a stream, or all the
// allocations that lie there in a row.
func (n *names) behind(nodes []oracle.Node, at int32) string {
	var allocated []string
	freed := map[uint8]bool{}
	for i := at; i >= 0; i-- {
		node := &nodes[i]
		if node.Stream != nodes[at].Stream || node.Aborted {
			continue
		}
		switch node.Kind {
		case oracle.Free:
			freed[node.Block] = true
			continue
		case oracle.Alloc:
			if !freed[node.Block] {
				allocated = append([]string{blockName(node.Block)}, allocated...)
			}
			continue
		}
		if len(allocated) == 0 {
			return n.operations[node.Op]
		}
		break
	}
	return "alloc " + strings.Join(allocated, ", ")
}
