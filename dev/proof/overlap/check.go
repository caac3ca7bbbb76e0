package overlap

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/interleave"
)

// ErrNotInstrumented is returned if the packages under proof were built with the standard
// library's locks.
var ErrNotInstrumented = errors.New("the packages under proof were not instrumented: build with an overlay of package overlay")

// Failure is a program with an execution that was not as it must be.
type Failure struct {
	Program Program
	Cause   error
}

// Error describes the program, the fault, and where goroutines were stopped.
func (f *Failure) Error() string { return fmt.Sprintf("program:  %v\n%v", f.Program, f.Cause) }

// Unwrap is the cause.
func (f *Failure) Unwrap() error { return f.Cause }

// Pooled is what the runtime's own pool did after the set-up: the moves by the number of executions
// that were judged, and how many allocations and frees of those went by the quick path.
type Pooled struct {
	Moves   proof.Moves
	Quickly proof.Quickly
}

// Add adds that of others.
func (d *Pooled) Add(o Pooled) {
	d.Moves.Add(o.Moves)
	d.Quickly.Add(o.Quickly)
}

// Check explores a program with so many preemptions. The error is a [Failure].
func Check(p Program, preemptions int) (interleave.Result, Pooled, error) {
	var did Pooled
	pooled := p.pooled()
	result, err := explore(p, interleave.Test{Preemptions: preemptions}, func(x *execution) {
		if pooled {
			did.Add(Pooled{x.moves(), x.Quickly().Since(x.beforeEntry)})
		}
	})
	return result, did, err
}

// explore calls look after every execution that differs from those before.
func explore(p Program, test interleave.Test, look func(*execution)) (interleave.Result, error) {
	var x *execution
	var broken error
	result, err := interleave.Explore(interleave.Test{
		Preemptions: test.Preemptions,
		All:         test.All,
		Prepare: func() []func() {
			if x, broken = newExecution(p); broken != nil {
				return nil
			}
			if interleave.Met() == 0 { // making a runtime takes locks
				broken = ErrNotInstrumented
				return nil
			}
			return x.prepare()
		},
		Check: func() error {
			if broken != nil {
				return broken
			}
			look(x)
			return x.finish()
		},
	})
	if err != nil {
		return result, &Failure{Program: clone(p), Cause: err}
	}
	return result, nil
}

func clone(p Program) Program {
	c := Program{Setup: slices.Clone(p.Setup), Entered: p.Entered}
	for _, calls := range p.Threads {
		c.Threads = append(c.Threads, slices.Clone(calls))
	}
	return c
}
