package main

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime"
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
	for i := 0; i < len(fates) && !killed; i++ {
		f := &fates[i]
		fmt.Fprintf(os.Stderr, "site %d, execution %d, again\n", site, f.Execution)
		f.try(slices.Values(s.repeats(site)))
		f.try(further)
		killed = f.Killed
	}
	return fates
}

// further are trials that were not run in advance.
func further(yield func(*trial) bool) {
	for seed := range uint64(furtherSeeds) {
		if !yield(largeTrial(seeds+seed)) || !yield(poolTrial(poolSeeds+seed)) {
			return
		}
	}
}

// repeats are small and short programs that kill the first execution of a site,
// many times in a row: as they come to it again and again they may kill any
// later one. They are looked for when a mutant has survived others.
func (s *suite) repeats(site int) []*trial {
	if s.repeated[site] == nil {
		s.repeated[site] = append(killers(reaching(s.small, site, 1, mostSmall[0]), site), killers(s.short, site)...)
	}
	return s.repeated[site]
}

// killers are some of the trials that kill the first execution, repeated.
func killers(of []*trial, site int) (repeated []*trial) {
	for _, t := range of {
		if len(repeated) == mostKillers {
			break
		}
		if by, _ := t.run(site, 1); len(by) > 0 {
			repeated = append(repeated, t.repeat())
		}
	}
	return repeated
}

// repeat is the trial many times in a row.
func (t *trial) repeat() *trial {
	p := t.program.Repeat(times)
	each := len(p) / times
	var all proof.Schedule
	for i := range times {
		for _, step := range t.schedule {
			step.Op += uint8(i * each)
			all = append(all, step)
		}
		for op := i*each + len(t.program); op < (i+1)*each; op++ { // the frees
			all = append(all, proof.Step{Op: uint8(op)})
		}
	}
	return &trial{t.streams, p, all, t.over, nil}
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
			by, err = []string{"panic"}, fmt.Errorf("%v\n%v: %v", t.program, t.schedule, r)
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
