package proof

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// Bound says which programs are run, and on how many host goroutines. Those of
// fewer operations than From are left out.
type Bound struct {
	program.Bounds
	From, Goroutines int
}

// String is such as "3x3x5/2" for 3 streams, 3 blocks and 5 operations on 2
// goroutines.
func (b Bound) String() string {
	text := fmt.Sprintf("%dx%dx%d/%d", b.Streams, b.Blocks, b.Ops, b.Goroutines)
	if b.From > 1 {
		text += fmt.Sprintf("(from %d)", b.From)
	}
	return text
}

// Total is what came out of many programs.
type Total struct {
	// Programs and Schedules are how many were run: schedules of the host, as
	// each has one order of the device that differs where nothing is missed.
	Programs, Schedules uint64
	// Waits were queued. Missed, Redundant, Extra and Excused are as in
	// [oracle.Verdict]; Missed counts wrong values too.
	Waits, Missed, Redundant, Extra, Excused uint64
	// Moves is what the runtime's own pool did.
	Moves Moves
}

// Count adds the verdict of one run.
func (t *Total) Count(v oracle.Verdict) {
	t.Schedules += uint64(v.Schedules)
	t.Waits += uint64(v.Waits)
	t.Missed += uint64(v.Missed + v.Wrong)
	t.Redundant += uint64(v.Redundant)
	t.Extra += uint64(v.Extra)
	t.Excused += uint64(v.Excused)
}

// Add adds another total.
func (t *Total) Add(o Total) { addCounters(t, o) }

// String is such as "programs=93 schedules=191 missed=0 redundant=0 extra=0".
func (t Total) String() string {
	return fmt.Sprintf("programs=%d schedules=%d missed=%d redundant=%d extra=%d", t.Programs, t.Schedules, t.Missed, t.Redundant, t.Extra)
}

// Failure is a run in which something was wrong. It prints all that is needed
// to understand and to repeat it.
type Failure struct {
	// Program and Schedule are nil where calls overlap, as others print them.
	Program  program.Program
	Schedule Schedule
	Verdict  oracle.Verdict
	// Cause is the error of the production code, if that is what was wrong.
	Cause   error
	History string
}

// Error describes the failure.
func (f *Failure) Error() string {
	var b strings.Builder
	if f.Program != nil {
		fmt.Fprintf(&b, "program:  %v\nschedule: %v\n", f.Program, f.Schedule)
	}
	if f.Cause != nil {
		fmt.Fprintf(&b, "error:    %v\n", f.Cause)
	}
	fmt.Fprintf(&b, "verdict:  %s (missed %d, redundant %d, extra %d, wrong %d)\n%s", f.Verdict.Why, f.Verdict.Missed, f.Verdict.Redundant, f.Verdict.Extra, f.Verdict.Wrong, f.History)
	return b.String()
}

// Unwrap is the cause.
func (f *Failure) Unwrap() error { return f.Cause }

// Check runs one program under one schedule. The error is a [Failure].
func (r *Runner) Check(p program.Program, s Schedule) (oracle.Verdict, error) {
	v, err := r.Run(p, s)
	if err != nil || v.Bad() {
		return v, &Failure{Program: slices.Clone(p), Schedule: slices.Clone(s), Verdict: v, Cause: err, History: r.History().String()}
	}
	return v, nil
}

// CheckOnce runs one program under one schedule on a runner of its own, and
// closes that: events that are left are a failure too. It says what the runtime's own pool did.
func CheckOnce(cfg Config, p program.Program, s Schedule) (Moves, error) {
	r, err := NewRunner(cfg)
	if err != nil {
		return Moves{}, err
	}
	v, err := r.Check(p, s)
	if err != nil {
		return r.Moves(), err
	}
	history := r.History().String()
	if err := r.Close(); err != nil {
		return r.Moves(), &Failure{Program: p, Schedule: s, Verdict: v, Cause: err, History: history}
	}
	return r.Moves(), nil
}

// CheckAll runs a program under every schedule, and stops at the first
// failure.
func (r *Runner) CheckAll(p program.Program, goroutines int, total *Total) (err error) {
	total.Programs++
	r.moves = Moves{}
	Explorer{Goroutines: goroutines}.Each(p, func(s Schedule) bool {
		var v oracle.Verdict
		v, err = r.Check(p, s)
		total.Count(v)
		return err == nil
	})
	if r.config.Over.IsOwnPool() {
		total.Moves.Add(r.moves)
	}
	return err
}

// Checker checks programs. It is closed when all went well.
type Checker interface {
	// CheckAll checks a program under every schedule for so many host goroutines,
	// and adds what came out.
	CheckAll(p program.Program, goroutines int, total *Total) error
	// Close looks whether everything came back.
	Close() error
}

// row is how many programs in a row one thread checks: it makes all and leaves out what is others'.
const row = 64

// Exhaust runs every program of the bound under every schedule, on so many threads with a checker for
// each, and stops at the first failure.
func Exhaust(b Bound, workers int, checker func() (Checker, error)) (Total, error) {
	var (
		failed  atomic.Bool
		wg      sync.WaitGroup
		mu      sync.Mutex
		total   Total
		failure error
	)
	for worker := range workers {
		wg.Go(func() {
			var own Total
			n := 0
			r, err := checker()
			b.Each(b.From, func(p program.Program) bool {
				if err == nil && n/row%workers == worker {
					err = r.CheckAll(p, b.Goroutines, &own)
				}
				n++
				return err == nil && !failed.Load()
			})
			if err == nil && !failed.Load() {
				err = r.Close()
			}
			failed.CompareAndSwap(false, err != nil)
			mu.Lock()
			defer mu.Unlock()
			total.Add(own)
			failure = errors.Join(failure, err)
		})
	}
	wg.Wait()
	return total, failure
}
