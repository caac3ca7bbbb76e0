package corpus

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
)

// Verdict is what came of one run.
type Verdict struct {
	Outcome Outcome `json:"outcome"`
	// Kind and Victim are of the finding that decided, of compute-sanitizer empty.
	Kind   core.FindingKind `json:"kind,omitempty"`
	Victim string           `json:"victim,omitempty"`
	// Culprit is the place of the case's culprit among the suspects, from 1,
	// and 0 if it is not there; Suspects is how many there are.
	Culprit  int `json:"culprit,omitempty"`
	Suspects int `json:"suspects,omitempty"`
	// Seen is how many different things the oracle of the simulated device saw.
	Seen int `json:"seen,omitempty"`
	// Text is the finding's, or says what went wrong.
	Text string `json:"text,omitempty"`
}

// Run runs a case, with or without its bug, at a tier.
func (m *Machine) Run(ctx context.Context, c Case, bug bool, t Tier) Verdict {
	return m.run(ctx, c, bug, t, fencepost.Async)
}

// RunAlone runs a case with the guard off over a backend, for a process that a
// tool watches.
func (m *Machine) RunAlone(ctx context.Context, c Case, bug bool) Verdict {
	return m.run(ctx, c, bug, Bare, c.ToolBackend())
}

func (m *Machine) run(ctx context.Context, c Case, bug bool, t Tier, backend fencepost.Backend) Verdict {
	ctx, cancel := context.WithTimeout(ctx, programBound)
	defer cancel()
	w, err := m.open(ctx, c, t, backend)
	if err != nil {
		return Verdict{Outcome: Broken, Text: "opening: " + err.Error()}
	}
	err = w.perform(c, bug)
	err = errors.Join(err, w.finish())
	v := w.judge(c, bug && c.Class != Clean)
	if lost := bug && (c.Faults || t.OwnProcess) && errors.Is(err, core.ErrSticky); err != nil && !lost {
		v.Outcome, v.Text = Broken, err.Error()
	}
	return v
}

// perform runs the program and returns why it ended early.
func (w *World) perform(c Case, bug bool) (err error) {
	defer func() {
		switch end := recover().(type) {
		case nil:
		case stop:
			err = end.err
		default:
			panic(end)
		}
	}()
	c.Run(w, bug)
	return nil
}

// judge says what was made of the program.
func (w *World) judge(c Case, bug bool) Verdict {
	found, seen := w.watch.split()
	if w.sim != nil {
		seen += len(w.sim.Findings())
	}
	if bug {
		v := w.watch.verdict(c, found)
		if err := w.watch.byDriver; err != nil && v.Outcome != Found {
			v = Verdict{Outcome: DriverRefused, Text: err.Error()} // nothing happened that could be found
		}
		v.Seen = seen
		return v
	}
	v := Verdict{Outcome: Silent, Seen: seen}
	found = slices.DeleteFunc(found, func(n noted) bool { return n.Unproven }) // which says of itself that there need be no bug
	if len(found) > 0 {
		v = Verdict{Outcome: FalseAlarm, Kind: found[0].Kind, Victim: string(found[0].Victim.Tag), Suspects: len(found[0].Suspects), Seen: seen, Text: found[0].String()}
	} else if w.watch.refused != nil {
		v = Verdict{Outcome: Broken, Seen: seen, Text: fmt.Sprintf("a call that is right was refused: %v", w.watch.refused)}
	}
	return v
}

// verdict takes the best of the findings.
func (v *watch) verdict(c Case, found []noted) Verdict {
	best := Verdict{Outcome: Missed}
	for _, n := range found {
		now := Verdict{Outcome: v.outcome(c, n), Kind: n.Kind, Victim: string(n.Victim.Tag), Suspects: len(n.Suspects), Text: n.Text}
		if now.Outcome == Missed {
			continue
		}
		now.Culprit = 1 + slices.IndexFunc(n.Suspects, func(u core.UseRecord) bool { return c.Culprit != "" && u.Launch == c.Culprit })
		if better(now, best) {
			best = now
		}
	}
	return best
}

func (v *watch) outcome(c Case, n noted) Outcome {
	kind, right := slices.Contains(c.Kinds, n.Kind) || n.Kind == names.FindingStickyError || n.Kind == names.FindingIllegalAccess, v.right(n.Finding)
	switch {
	case kind && right && !n.late:
		return Found
	case kind, right && n.Victim.ID.Generation != 0:
		return Late
	}
	return Missed
}

// better prefers what was found, and of two finds the one that names the
// culprit earlier.
func better(a, b Verdict) bool {
	if rank := map[Outcome]int{Found: 2, Late: 1}; rank[a.Outcome] != rank[b.Outcome] {
		return rank[a.Outcome] > rank[b.Outcome]
	}
	return a.Culprit != 0 && (b.Culprit == 0 || a.Culprit < b.Culprit)
}
