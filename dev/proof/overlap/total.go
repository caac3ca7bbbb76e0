package overlap

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/dev/proof/interleave"
)

// Total is what came out of many programs.
type Total struct {
	Programs uint64
	interleave.Result
	// Pooled is what the runtime's own pool did.
	Pooled Pooled
	// Bounds are the families, as texts.
	Bounds []string
	// Missed, Redundant and Extra are as in [oracle.Verdict], Missed with wrong
	// values; Deadlocks counts executions that came to no end, Faults those
	// with another fault. All are of the one that ended the exploration.
	Missed, Redundant, Extra, Deadlocks, Faults int
	// Failure is that one.
	Failure string
}

// Add adds the total of other programs.
func (t *Total) Add(o *Total) {
	t.Programs += o.Programs
	t.Executions += o.Executions
	t.Steps += o.Steps
	t.Ends += o.Ends
	t.Pooled.Add(o.Pooled)
	t.Missed += o.Missed
	t.Redundant += o.Redundant
	t.Extra += o.Extra
	t.Deadlocks += o.Deadlocks
	t.Faults += o.Faults
	t.Bounds = o.Bounds
	if t.Failure == "" {
		t.Failure = o.Failure
	}
}

// String is such as "programs=7 executions=93 missed=0 redundant=0 extra=0
// deadlocks=0 faults=0".
func (t *Total) String() string {
	return fmt.Sprintf("programs=%d executions=%d missed=%d redundant=%d extra=%d deadlocks=%d faults=%d",
		t.Programs, t.Executions, t.Missed, t.Redundant, t.Extra, t.Deadlocks, t.Faults)
}

func (t *Total) fail(err error) {
	t.Failure = err.Error()
	var fault *Fault
	if errors.As(err, &fault) {
		t.Missed, t.Redundant, t.Extra = fault.Verdict.Missed+fault.Verdict.Wrong, fault.Verdict.Redundant, fault.Verdict.Extra
	}
	switch {
	case errors.Is(err, interleave.ErrDeadlock):
		t.Deadlocks = 1
	case fault == nil || fault.Cause != nil:
		t.Faults = 1
	}
}

// Explore checks the programs of some families, every of-th from the own-th on,
// and stops at the first failure.
func Explore(families []*Family, own, of int) *Total {
	t := &Total{}
	n := 0
	for _, f := range families {
		t.Bounds = append(t.Bounds, f.String())
		f.Each(func(p Program) bool {
			if n++; n%of != own {
				return true
			}
			result, did, err := Check(p, f.Preemptions)
			t.Pooled.Add(did)
			t.Programs++
			t.Executions += result.Executions
			t.Steps += result.Steps
			t.Ends += result.Ends
			if err != nil {
				t.fail(err)
			}
			return err == nil
		})
		if t.Failure != "" {
			break
		}
	}
	return t
}
