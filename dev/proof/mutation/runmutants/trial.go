package main

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/mutation"
	"github.com/fencepost-gpu/fencepost/dev/proof/mutation/activemutant"
)

// fates tries the executions of a site in turn, and if none is killed by the trials that were run in
// advance, harder, until one is. Of a site that is said to be equivalent it tries a few.
func (s *suite) fates(site int, equivalent bool) []fate {
	executions := mutation.Executions
	if equivalent {
		executions = mutation.EquivalentExecutions
	}
	var fates []fate
	killed := equivalent
	for k := 1; k <= executions; k++ {
		f := fate{mutation.Fate{Site: site, Execution: k}}
		small, large := reaching(s.small, site, k, mostSmall[min(k-1, 1)]), reaching(s.large, site, k, mostLarge)
		if f.Reaching = len(small) + len(large); f.Reaching == 0 {
			break
		}
		fmt.Fprintf(os.Stderr, "site %d, execution %d\n", site, k)
		f.try(slices.Values(small))
		f.try(slices.Values(large))
		killed = killed || f.Killed
		fates = append(fates, f)
	}
	for i := 0; i < min(len(fates), mutation.HardExecutions) && !killed; i++ {
		f := &fates[i]
		fmt.Fprintf(os.Stderr, "site %d, execution %d, again\n", site, f.Execution)
		f.try(further)
		killed = f.Killed
	}
	return fates
}

// further are trials that were not run in advance.
func further(yield func(*trial) bool) {
	for seed := range uint64(furtherSeeds) {
		for _, d := range draws {
			if d.further && !yield(d.draw(d.seeds+seed)) {
				return
			}
		}
	}
}

// fate is that of the mutant under way.
type fate struct{ mutation.Fate }

// try tries a mutant on trials until one kills it, if none has.
func (f *fate) try(trials iter.Seq[*trial]) {
	for t := range trials {
		if f.Killed || t.kills(f) {
			return
		}
	}
}

// patience is for how long a trial may go on, which takes some milliseconds.
const patience = time.Minute

// kills tries a mutant on one trial. It counts if the trial goes well without the
// mutant, and ends badly with it again.
func (t *trial) kills(f *fate) bool {
	site, k := f.Site, f.Execution
	hangs := time.AfterFunc(patience, func() {
		fmt.Fprintln(os.Stderr, "fatal error: a program does not end")
		os.Exit(2)
	})
	defer hangs.Stop()
	f.Runs++
	by, _ := t.run(site, k)
	if len(by) == 0 {
		return false
	}
	for range 2 {
		clean, _ := t.run(-1, 0)
		by, err := t.run(site, k)
		if len(clean) == 0 && len(by) > 0 {
			f.Killed, f.By, f.Report = true, by, err.Error()
			return true
		}
		forget() // it was the doing of an earlier trial
	}
	return false
}

// forget empties the pools of package cuda: what a mutant has left in a record
// must not be blamed on the next.
func forget() {
	runtime.GC()
	runtime.GC() // the first one keeps what was in use lately
}

// run runs a trial with a mutant, and says in which ways it went wrong.
func (t *trial) run(site, k int) (by []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			by, err = []string{"panic"}, fmt.Errorf("%v\n%v: %v\n%s", t.program, t.schedule, r, debug.Stack())
		}
	}()
	activemutant.Arm(site, k)
	_, err = proof.CheckOnce(proof.Config{Streams: t.streams, Over: t.over}, t.program, t.schedule)
	return reasons(err), err
}

// reasons names what is wrong.
func reasons(err error) (by []string) {
	var f *proof.Failure
	if !errors.As(err, &f) {
		if err != nil {
			by = append(by, "error")
		}
		return by
	}
	for _, r := range []struct {
		name string
		is   bool
	}{
		{"missed", f.Verdict.Missed > 0}, {"wrong", f.Verdict.Wrong > 0}, {"redundant", f.Verdict.Redundant > 0}, {"extra", f.Verdict.Extra > 0},
		{"books", errors.Is(err, proof.ErrBooks)}, {"events", errors.Is(err, proof.ErrEvents)}, {"early", errors.Is(err, proof.ErrEarly)}, {"torn", errors.Is(err, proof.ErrTorn)},
		{"answer", errors.Is(err, proof.ErrAnswer) || errors.Is(err, core.ErrStreamMisuse)}, {"driver", errors.Is(err, core.ErrDriver)},
	} {
		if r.is {
			by = append(by, r.name)
		}
	}
	if len(by) == 0 {
		by = append(by, "error")
	}
	return by
}
