package oracle

import (
	"fmt"
	"strconv"
	"strings"
)

var kindNames = [...]string{"prepare", "work", "finish", "allocation", "free", "wait", "end"}

// text describes a node.
func (h *History) text(at int32) string {
	n := &h.nodes[at]
	text := fmt.Sprintf("#%d the %s of operation %d on stream %d", at, kindNames[n.Kind], n.Op, n.Stream)
	switch n.Kind {
	case Wait:
		text += fmt.Sprintf(" for #%d", n.From)
	case Alloc, Free:
		text += fmt.Sprintf(" (block %d at %v)", n.Block, n.Cells)
	}
	return text
}

// String is such as "2" or "2+3".
func (c Cells) String() string {
	var parts []string
	for cell := range c.all {
		parts = append(parts, strconv.Itoa(int(cell)))
	}
	return strings.Join(parts, "+")
}

// String lists the nodes, one to a line.
func (h *History) String() string {
	var b strings.Builder
	for i := range h.nodes {
		fmt.Fprintln(&b, h.text(int32(i)))
	}
	for _, l := range h.learned {
		fmt.Fprintf(&b, "from #%d on the host has seen #%d done\n", l.at, l.node)
	}
	return b.String()
}
