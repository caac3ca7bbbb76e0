package overlap

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fencepost-gpu/fencepost/dev/proof/interleave"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
)

// CompareReduction explores one in so many programs of families of two short
// goroutines with the scheduler's reduction and without, which takes long, with at
// most two preemptions, and compares what came about. Failure says where that differs.
func CompareReduction(families []*Family, sampled int) *Total {
	t := &Total{}
	for _, f := range families {
		if !slices.Equal(f.Shape, []int{1, 1}) {
			continue
		}
		t.Bounds = append(t.Bounds, f.String())
		n := 0
		f.Each(func(p Program) bool {
			if n++; n%sampled == 0 {
				t.Programs++
				t.compare(p, min(f.Preemptions, 2))
			}
			return t.Failure == ""
		})
	}
	return t
}

func (t *Total) compare(p Program, preemptions int) {
	var found [2]map[string]bool
	for i, all := range []bool{true, false} {
		found[i] = map[string]bool{}
		result, err := explore(p, interleave.Test{Preemptions: preemptions, All: all}, func(x *execution) { found[i][x.outcome()] = true })
		t.Executions += result.Executions
		if err != nil {
			t.fail(err)
			return
		}
	}
	if !maps.Equal(found[0], found[1]) {
		t.fail(fmt.Errorf("program:  %v\nwithout the reduction %v\nwith it               %v", p, slices.Sorted(maps.Keys(found[0])), slices.Sorted(maps.Keys(found[1]))))
	}
}

// outcome is what came about but for the order of what has nothing in common:
// for each stream what lies there, and what is waited for.
func (x *execution) outcome() string {
	var streams [8]string
	nodes := x.gate.History.Nodes()
	for i := range nodes {
		n := &nodes[i]
		text := fmt.Sprintf("%d:%d:%d", n.Kind, n.Op, n.Cells)
		if n.Kind == oracle.Wait && n.From >= 0 {
			from := &nodes[n.From]
			text += fmt.Sprintf(" for %d:%d", from.Kind, from.Op)
		}
		streams[n.Stream] += text + ", "
	}
	return fmt.Sprint(streams, x.refused, x.live)
}
