package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/fencecheck"
	"github.com/fencepost-gpu/fencepost/internal/fencecheck/mutation"
	"github.com/fencepost-gpu/fencepost/internal/fencecheck/mutation/toggle"
)

// fate tries a mutant. A kill counts if the same trial kills it again and is
// clean without it, each with nothing left of the trials before.
func (s *suite) fate(site, k int) mutation.Fate {
	r := &s.reaching[site][k-1]
	f := mutation.Fate{Site: site, Execution: k, Reaching: r.n}
	for _, t := range slices.Concat(r.small, r.large) {
		if t.kills(site, k, &f) {
			return f
		}
	}
	for seed := range uint64(furtherSeeds) {
		if largeTrial(seeds+seed).kills(site, k, &f) {
			return f
		}
	}
	return f
}

// kills tries a mutant on one trial.
func (t *trial) kills(site, k int, f *mutation.Fate) bool {
	f.Runs++
	if by, _ := t.run(site, k); len(by) == 0 {
		return false
	}
	forget()
	by, err := t.run(site, k)
	forget()
	if clean, _ := t.run(-1, 0); len(by) == 0 || len(clean) > 0 {
		forget()
		return false
	}
	f.Killed, f.By, f.Report = true, by, err.Error()
	return true
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
	toggle.Arm(site, k)
	_, err = fencecheck.CheckOnce(t.streams, t.program, t.schedule)
	return reasons(err), err
}

// reasons names what is wrong.
func reasons(err error) (by []string) {
	var f *fencecheck.Failure
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
		{"books", errors.Is(err, fencecheck.ErrBooks)}, {"events", errors.Is(err, fencecheck.ErrEvents)}, {"early", errors.Is(err, fencecheck.ErrEarly)},
		{"answer", errors.Is(err, fencecheck.ErrAnswer) || errors.Is(err, core.ErrStreamMisuse)}, {"driver", errors.Is(err, core.ErrDriver)},
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
