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

// losesNothing demands that the reduced schedules of a program lead to all that its interleavings lead
// to, and counts both.
func losesNothing(t *testing.T, p program.Program, of Explorer, run func(Schedule) (*oracle.History, error)) (schedules, interleavings int) {
	t.Helper()
	outcomes := func(of Explorer) (found map[string]Schedule, n int) {
		found = map[string]Schedule{}
		of.Each(p, func(s Schedule) bool {
			n++
			h, err := run(s)
			if err != nil {
				t.Fatal(err)
			}
			found[shape(h)] = slices.Clone(s)
			return true
		})
		return found, n
	}
	reduced, schedules := outcomes(of)
	of.All = true
	all, interleavings := outcomes(of)
	for what, s := range all {
		if _, ok := reduced[what]; !ok {
			t.Errorf("%v\n%v leads to what no reduced schedule leads to:\n%s", p, s, what)
		}
	}
	return schedules, interleavings
}

func TestNoInterleavingLeadsElsewhere(t *testing.T) {
	r := must.Get(NewRunner(Config{Streams: 3}))(t)
	schedules, interleavings := 0, 0
	for _, b := range []Bound{
		{Bounds: program.Bounds{Streams: 3, Blocks: 2, Ops: 4, Kinds: everyKind}, Goroutines: 2},
		{Bounds: program.Bounds{Streams: 2, Blocks: 2, Ops: 4, Kinds: []program.Kind{program.Launch, program.Free, program.Abort}}, Goroutines: 3},
	} {
		n := 0
		b.Each(1, func(p program.Program) bool {
			if n++; testing.Short() && n%40 != 0 {
				return true
			}
			some, all := losesNothing(t, p, Explorer{Goroutines: b.Goroutines}, func(s Schedule) (*oracle.History, error) {
				_, err := r.Check(p, s)
				return r.History(), err
			})
			schedules, interleavings = schedules+some, interleavings+all
			return !t.Failed()
		})
	}
	t.Logf("%d schedules stand for %d interleavings", schedules, interleavings)
	must.Do(t, r.Close())
}
