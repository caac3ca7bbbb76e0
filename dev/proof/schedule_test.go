package proof

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

var everyKind = []program.Kind{program.Launch, program.Free, program.Sync, program.Abort, program.Record}

// shape is what lies on each stream, and what the waits are for: the order in
// which the host enqueued on different streams is left out.
func shape(h *oracle.History) string {
	place := make([]string, h.Len())
	lines := map[uint8][]string{}
	for i, n := range h.Nodes() {
		place[i] = fmt.Sprintf("%d.%d", n.Stream, len(lines[n.Stream]))
		text := fmt.Sprintf("%d:%d:%d:%d", n.Kind, n.Op, n.Block, n.Cells)
		if n.Kind == oracle.Wait && n.From >= 0 {
			text += "<" + place[n.From]
		}
		lines[n.Stream] = append(lines[n.Stream], text)
	}
	var all []string
	for s, line := range lines {
		all = append(all, fmt.Sprintf("%d: %s", s, strings.Join(line, " ")))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// What the reduced schedules lead to is all that the interleavings lead to.
func TestNoInterleavingLeadsElsewhere(t *testing.T) {
	r := must.Get(NewRunner(Config{Streams: 3}))(t)
	schedules, interleavings := 0, 0
	outcomes := func(p program.Program, of Explorer, n *int) map[string]Schedule {
		found := map[string]Schedule{}
		of.Each(p, func(s Schedule) bool {
			*n++
			must.Get(r.Check(p, s))(t)
			found[shape(r.History())] = slices.Clone(s)
			return true
		})
		return found
	}
	for _, b := range []Bound{
		{Bounds: program.Bounds{Streams: 3, Blocks: 2, Ops: 4, Kinds: everyKind}, Goroutines: 2},
		{Bounds: program.Bounds{Streams: 2, Blocks: 2, Ops: 4, Kinds: []program.Kind{program.Launch, program.Free, program.Abort}}, Goroutines: 3},
	} {
		n := 0
		b.Each(1, func(p program.Program) bool {
			if n++; testing.Short() && n%40 != 0 {
				return true
			}
			reduced := outcomes(p, Explorer{Goroutines: b.Goroutines}, &schedules)
			for what, s := range outcomes(p, Explorer{Goroutines: b.Goroutines, All: true}, &interleavings) {
				if _, ok := reduced[what]; !ok {
					t.Errorf("%v\n%v leads to what no reduced schedule leads to:\n%s", p, s, what)
				}
			}
			return !t.Failed()
		})
	}
	t.Logf("%d schedules stand for %d interleavings", schedules, interleavings)
	must.Do(t, r.Close())
}
