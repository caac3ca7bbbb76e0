package corpus

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// about is a finding of a kind about a block.
func about(kind core.FindingKind, g core.Generation, late bool, launches ...string) noted {
	n := noted{Finding: core.Finding{Kind: kind, Victim: core.Block{ID: core.BlockID{Generation: g}}}, late: late}
	for _, name := range launches {
		n.Suspects = append(n.Suspects, core.UseRecord{Launch: name})
	}
	return n
}

func TestAVerdictAsksForKindVictimAndTime(t *testing.T) {
	const victim, bystander, none = 7, 8, 0
	c := Case{Kinds: []core.FindingKind{names.FindingUnderflow}, Culprit: "guilty"}
	for name, try := range map[string]struct {
		found []noted
		want  Outcome
	}{
		"nothing":                           {nil, Missed},
		"the right kind and victim":         {[]noted{about(names.FindingUnderflow, victim, false)}, Found},
		"the same when all was over":        {[]noted{about(names.FindingUnderflow, victim, true)}, Late},
		"the right kind of a bystander":     {[]noted{about(names.FindingUnderflow, bystander, false)}, Late},
		"the right kind of nobody":          {[]noted{about(names.FindingUnderflow, none, false)}, Late},
		"another kind of the victim":        {[]noted{about(names.FindingLeak, victim, false)}, Late},
		"another kind of a bystander":       {[]noted{about(names.FindingLeak, bystander, false)}, Missed},
		"another kind of nobody":            {[]noted{about(names.FindingLeak, none, false)}, Missed},
		"the best of several":               {[]noted{about(names.FindingLeak, victim, false), about(names.FindingUnderflow, victim, false)}, Found},
		"the best of several, which is bad": {[]noted{about(names.FindingLeak, bystander, false), about(names.FindingUnderflow, bystander, false)}, Late},
	} {
		w := watch{victims: []core.Generation{victim}}
		if got := w.verdict(c, try.found); got.Outcome != try.want {
			t.Errorf("%s is %s, want %s", name, got.Outcome, try.want)
		}
	}
}

func TestAVerdictSaysWhereTheCulpritStands(t *testing.T) {
	c := Case{Kinds: []core.FindingKind{names.FindingUnderflow}, Culprit: "guilty"}
	w := watch{victims: []core.Generation{7}}
	for want, launches := range map[int][]string{0: {"a", "b"}, 1: {"guilty", "a"}, 2: {"a", "guilty"}} {
		if got := w.verdict(c, []noted{about(names.FindingUnderflow, 7, false, launches...)}); got.Culprit != want || got.Suspects != 2 {
			t.Errorf("among %v the culprit is number %d of %d", launches, got.Culprit, got.Suspects)
		}
	}
	two := []noted{about(names.FindingUnderflow, 7, false, "a", "guilty"), about(names.FindingUnderflow, 7, false, "guilty")}
	if got := w.verdict(c, two); got.Culprit != 1 {
		t.Errorf("of two findings the one was taken that names the culprit as number %d", got.Culprit)
	}
}

// The machinery against programs that are broken in known ways.
func TestABrokenProgramIsNoVerdict(t *testing.T) {
	for name, run := range map[string]func(w *World, bug bool){
		"an unexpected error":  func(w *World, _ bool) { w.must(errors.New("unexpected")) },
		"a clean call refused": func(w *World, _ bool) { w.Refused(errors.New("refused")) },
		"a demand not met":     func(w *World, _ bool) { w.failf("it did not come about") },
	} {
		c := Case{Name: "broken", Class: Spatial, Run: run}
		if v := OnSim().Run(ctx, c, false, Tier0); v.Outcome != Broken {
			t.Errorf("%s: %s", name, v.Outcome)
		}
	}
	leaky := Case{Name: "leaky", Class: Clean, Run: func(w *World, _ bool) { w.Filled(w.Stream(), "left", 10, 1) }}
	if v := OnSim().Run(ctx, leaky, false, Tier0); v.Outcome != FalseAlarm || v.Kind != names.FindingLeak {
		t.Errorf("a clean program that leaks: %s %s", v.Outcome, v.Kind)
	}
}

func TestResultsAreReadAsTheyWereWritten(t *testing.T) {
	r := Result{Device: "d", Driver: "v", Case: "overrun-word", Variant: Twin, Tier: Tier2.Name, Verdict: Verdict{Outcome: Silent, Culprit: 2, Suspects: 3, Text: "a\nb"}}
	line, err := r.Line()
	must.Do(t, err)
	got, err := ReadResults([]byte("# a comment\n\n" + line))
	if err != nil || len(got) != 1 || got[0] != r {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"{", `{"case":"no such case"}`} {
		if _, err := ReadResults([]byte(bad)); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

// refuses stands for a call that the driver of a GPU does not take.
func refuses(code int) func(driver.Stream) error {
	return func(driver.Stream) error { return driver.NewError("cuMemsetD8Async", code) }
}

func TestADriverThatRefusesTheBugIsNoBrokenProgram(t *testing.T) {
	for name, try := range map[string]struct {
		guilty, declared bool
		code             int
		want             Outcome
	}{
		"the guilty call, declared":          {true, true, driver.InvalidValue, DriverRefused},
		"the guilty call, raw":               {true, false, driver.InvalidValue, DriverRefused},
		"an innocent call":                   {false, true, driver.InvalidValue, Broken},
		"an innocent call, raw":              {false, false, driver.InvalidValue, Broken},
		"the guilty call for another reason": {true, true, driver.InvalidHandle, Broken},
	} {
		c := Case{Name: "refused", Class: Spatial, Run: func(w *World, _ bool) {
			s := w.Stream()
			b := w.Filled(s, "rows", words, 1)
			j := Job{Name: "clear_rows", On: s, Uses: []core.Use{b.W()}, Guilty: try.guilty, Enqueue: refuses(try.code)}
			if try.declared {
				w.Do(j)
			} else {
				w.Raw(j)
			}
			w.Free(b)
		}}
		for where, v := range map[string]Verdict{"tier 1": OnSim().Run(ctx, c, true, Tier1), "alone": OnSim().RunAlone(ctx, c, true)} {
			if v.Outcome != try.want || v.Text == "" {
				t.Errorf("%s, %s: %s %q, want %s", name, where, v.Outcome, v.Text, try.want)
			}
		}
	}
}

func TestWhatWasFoundIsFoundAlthoughTheDriverRefused(t *testing.T) {
	c := Case{Name: "both", Class: Temporal, Kinds: []core.FindingKind{names.FindingUninitializedRead}, Run: func(w *World, _ bool) {
		s := w.Stream()
		b := w.Words(s, "rows", words)
		w.Victim(b.ID)
		w.Do(Job{Name: "copy_rows", On: s, Uses: []core.Use{b.R()}, Guilty: true, Enqueue: refuses(driver.InvalidValue)})
		w.Free(b)
	}}
	if v := OnSim().Run(ctx, c, true, Tier0); v.Outcome != Found {
		t.Errorf("%s %s", v.Outcome, v.Text)
	}
}

func TestARefusalWillDoOnlyForABugThatTheTierMisses(t *testing.T) {
	c := Case{Class: Spatial, Want: onDevice}
	for name, try := range map[string]struct {
		variant string
		tier    Tier
		got     Outcome
		want    bool
	}{
		"missed where it is missed":  {WithBug, Tier0, Missed, true},
		"refused where it is missed": {WithBug, Tier0, DriverRefused, true},
		"broken where it is missed":  {WithBug, Tier0, Broken, false},
		"refused where it is found":  {WithBug, Tier1, DriverRefused, false},
		"a twin that was refused":    {Twin, Tier0, DriverRefused, false},
		"a twin that is silent":      {Twin, Tier1, Silent, true},
	} {
		if got := c.Accepts(try.variant, try.tier.Name, try.got); got != try.want {
			t.Errorf("%s: accepted is %v", name, got)
		}
	}
}
