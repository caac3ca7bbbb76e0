package overlap

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/interleave"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
)

// ErrNotInstrumented is returned if the packages under proof were built with the standard
// library's locks.
var ErrNotInstrumented = errors.New("the packages under proof were not instrumented: build with an overlay of package overlay")

// Total is what came out of many programs.
type Total struct {
	Programs uint64
	interleave.Result
	// Moves is what the runtime's own pool did after the set-ups.
	Moves proof.Moves
	// Bounds are the families, as texts.
	Bounds []string
	// Verdict is the oracle's on the execution that ended the exploration; Deadlocks counts executions
	// that came to no end, Faults those with another fault.
	Verdict           oracle.Verdict
	Deadlocks, Faults int
	// Failure is that execution.
	Failure string
}

// Add adds the total of other programs.
func (t *Total) Add(o Total) {
	t.Programs += o.Programs
	t.Executions += o.Executions
	t.Steps += o.Steps
	t.Ends += o.Ends
	t.Moves.Add(o.Moves)
	t.Bounds = o.Bounds
	if t.Failure == "" {
		t.Verdict, t.Deadlocks, t.Faults, t.Failure = o.Verdict, o.Deadlocks, o.Faults, o.Failure
	}
}

// String is such as "programs=7 executions=93 missed=0 redundant=0 extra=0
// deadlocks=0 faults=0".
func (t Total) String() string {
	return fmt.Sprintf("programs=%d executions=%d missed=%d redundant=%d extra=%d deadlocks=%d faults=%d",
		t.Programs, t.Executions, t.Verdict.Missed+t.Verdict.Wrong, t.Verdict.Redundant, t.Verdict.Extra, t.Deadlocks, t.Faults)
}

// Explore checks the programs of some families, every of-th from the own-th on,
// and stops at the first failure.
func Explore(families []*Family, own, of int) *Total {
	t := &Total{}
	n := 0
	for _, f := range families {
		t.Bounds = append(t.Bounds, f.String())
		f.Each(func(p Program) bool {
			if n++; n%of == own {
				t.check(p, interleave.Test{Preemptions: f.Preemptions}, func(*execution) {})
			}
			return t.Failure == ""
		})
		if t.Failure != "" {
			break
		}
	}
	return t
}

// check explores a program and adds what came out. It calls look with every execution that differs
// from those before.
func (t *Total) check(p Program, test interleave.Test, look func(*execution)) {
	var x *execution
	var broken error
	test.Prepare = func() []func() {
		if x, broken = newExecution(p); broken != nil {
			return nil
		}
		if interleave.Met() == 0 { // making a runtime takes locks
			broken = ErrNotInstrumented
			return nil
		}
		return x.prepare()
	}
	test.Check = func() error {
		if broken != nil {
			return broken
		}
		look(x)
		t.Moves.Add(x.Did())
		return x.finish()
	}
	result, err := interleave.Explore(test)
	t.Programs++
	t.Executions += result.Executions
	t.Steps += result.Steps
	t.Ends += result.Ends
	if err != nil {
		t.fail(fmt.Errorf("program:  %v\n%w", p, err))
	}
}

func (t *Total) fail(err error) {
	t.Failure = err.Error()
	var failure *proof.Failure
	if errors.As(err, &failure) {
		t.Verdict = failure.Verdict
	}
	switch {
	case errors.Is(err, interleave.ErrDeadlock):
		t.Deadlocks = 1
	case failure == nil || failure.Cause != nil:
		t.Faults = 1
	}
}

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
		t.check(p, interleave.Test{Preemptions: preemptions, All: all}, func(x *execution) { found[i][x.outcome()] = true })
	}
	t.Programs-- // it is one
	if t.Failure == "" && !maps.Equal(found[0], found[1]) {
		t.fail(fmt.Errorf("program:  %v\nwithout the reduction %v\nwith it               %v", p, slices.Sorted(maps.Keys(found[0])), slices.Sorted(maps.Keys(found[1]))))
	}
}

// outcome is what came about but for the order of what has nothing in common:
// for each stream what lies there, and what is waited for.
func (x *execution) outcome() string {
	var streams [8]string
	nodes := x.History().Nodes()
	for i := range nodes {
		n := &nodes[i]
		text := fmt.Sprintf("%d:%d:%d", n.Kind, n.Op, n.Cells)
		if n.Kind == oracle.Wait && n.From >= 0 {
			from := &nodes[n.From]
			text += fmt.Sprintf(" for %d:%d", from.Kind, from.Op)
		}
		streams[n.Stream] += text + ", "
	}
	return fmt.Sprint(streams, x.refused, x.Live())
}
