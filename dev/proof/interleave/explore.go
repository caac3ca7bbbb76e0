package interleave

import (
	"fmt"
	"strings"
)

// Test is what is explored.
type Test struct {
	// Prepare makes everything anew and returns the goroutines to be scheduled,
	// at most four. It must do the same every time.
	Prepare func() []func()
	// Check is called when they have ended, unless only the order of steps
	// that have nothing in common was new.
	Check func() error
	// Preemptions is how many there may be: a goroutine that could go on is
	// stopped for another. Those that end or wait for a lock do not count.
	Preemptions int
	// All leaves nothing out: every goroutine is stopped before every step,
	// and no state counts as known. For tests of this package.
	All bool
}

// Result counts what was explored.
type Result struct {
	// Executions were run, Steps taken in them, Ends are the executions that
	// differ by more than the order of steps which have nothing in common.
	Executions, Steps, Ends uint64
}

// Failure is an execution that was not as it must be.
type Failure struct {
	Cause error
	// Trace is where goroutines were stopped and went on.
	Trace []string
}

// Error is the cause and the trace.
func (f *Failure) Error() string { return fmt.Sprintf("%v\n%s", f.Cause, strings.Join(f.Trace, "\n")) }

// Unwrap is the cause.
func (f *Failure) Unwrap() error { return f.Cause }

// search is the exploration of one test.
type search struct {
	test Test
	// path is the choices of the execution under way.
	path []choice
	seen map[reached]int8
	ends map[uint64]bool
	// shared names the objects that goroutines have in common; grown: one was
	// found that was not known to be.
	shared map[uint64]bool
	grown  bool
	result Result
}

// Explore runs the test with every choice of goroutines, and stops at the
// first [Failure]. The process must not do anything else meanwhile.
func Explore(test Test) (Result, error) {
	s := &search{test: test, shared: map[uint64]bool{}}
	for bound := min(1, test.Preemptions); ; {
		err := s.descend(bound)
		switch {
		case err != nil:
			return s.result, err
		case s.grown: // again, with that
		case bound == test.Preemptions:
			return s.result, nil
		default: // few preemptions find quickly what is shared
			bound = test.Preemptions
		}
	}
}

// descend tries all choices with so many preemptions, depth first. It ends
// early when it has found something to be shared.
func (s *search) descend(bound int) error {
	s.path, s.seen, s.ends, s.grown = s.path[:0], map[reached]int8{}, map[uint64]bool{}, false
	s.result.Ends = 0
	for more := true; more && !s.grown; more = s.advance() {
		if err := s.execute(bound, nil); err != nil {
			var trace []string
			if s.grown {
				s.grown = false
			}
			_ = s.execute(bound, &trace)
			return &Failure{Cause: err, Trace: trace}
		}
	}
	return nil
}

func (s *search) execute(bound int, trace *[]string) error {
	r := &run{search: s, budget: bound, trace: trace}
	epoch++
	for _, reset := range resets {
		reset()
	}
	exploring = r
	defer func() { exploring = nil }()
	r.start(s.test.Prepare())
	r.execute()
	s.result.Executions++
	s.result.Steps += uint64(r.steps)
	if r.fault != nil {
		return r.fault
	}
	if s.ends[r.state] && !s.test.All {
		return nil
	}
	s.ends[r.state] = true
	s.result.Ends++
	if err := s.test.Check(); err != nil {
		return err
	}
	return r.fault
}

// advance goes on to the next choices; false if there are none.
func (s *search) advance() bool {
	for len(s.path) > 0 {
		last := &s.path[len(s.path)-1]
		if last.taken++; last.taken < last.n {
			return true
		}
		s.path = s.path[:len(s.path)-1]
	}
	return false
}
