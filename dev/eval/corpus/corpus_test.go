package corpus

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core/names"
)

var ctx = context.Background()

// simulated runs the corpus once for all tests.
var simulated = sync.OnceValues(func() ([]Result, error) { return Simulated(ctx) })

func simResults(t *testing.T) []Result {
	t.Helper()
	all, err := simulated()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func find(t *testing.T, name string) Case {
	t.Helper()
	c, ok := Find(name)
	if !ok {
		t.Fatalf("there is no case %q", name)
	}
	return c
}

func TestThereAreEnoughCasesOfEachClass(t *testing.T) {
	n, names := map[Class]int{}, map[string]bool{}
	for _, c := range All() {
		n[c.Class]++
		if names[c.Name] || c.What == "" || strings.HasSuffix(c.What, ".") || strings.ContainsAny(c.Name, ": |") {
			t.Errorf("%q is twice there, or says badly what it is: %q", c.Name, c.What)
		}
		names[c.Name] = true
	}
	for class, least := range map[Class]int{Spatial: 15, Temporal: 18, Order: 12, Clean: 30} {
		if n[class] < least {
			t.Errorf("%d cases are %s, at least %d must be", n[class], class, least)
		}
	}
}

func TestEveryExpectedMissHasItsReason(t *testing.T) {
	for _, c := range Bugs() {
		if full := c.Want == everywhere; full != (c.Why == "") {
			t.Errorf("%s: found everywhere is %v, and why not is %q", c.Name, full, c.Why)
		}
		if len(c.Kinds) == 0 {
			t.Errorf("%s: of no kind", c.Name)
		}
		// What the runtime was told of must not need luck, and a leak is known
		// when the runtime closes.
		if c.Declared && c.Want.Tier0 != Found && !strings.Contains(c.Name, "leak") {
			t.Errorf("%s is declared, and tier 0 need not find it", c.Name)
		}
		if c.Declared && c.Class == Spatial {
			t.Errorf("%s is spatial and declared", c.Name)
		}
	}
}

// The oracle proves that the bugs are bugs and that their clean twins have none.
func TestTheOracleSeesTheBugsAndNothingElse(t *testing.T) {
	for _, r := range simResults(t) {
		c := find(t, r.Case)
		switch {
		case r.Variant != WithBug:
			if r.Seen > 0 || r.Outcome != Silent {
				t.Errorf("%s:%s at %s is %s, and the oracle saw %d things: %s", r.Case, r.Variant, r.Tier, r.Outcome, r.Seen, r.Text)
			}
		case r.Outcome == Broken:
			t.Errorf("%s at %s: %s", r.Case, r.Tier, r.Text)
		case r.Tier == Bare.Name && (r.Seen > 0) == (c.Unseen != ""):
			t.Errorf("%s: the oracle saw %d things, and why it might not is %q", r.Case, r.Seen, c.Unseen)
		}
	}
}

func TestTheTiersFindWhatTheyMust(t *testing.T) {
	for _, r := range simResults(t) {
		if r.Tier == Bare.Name || r.Variant != WithBug {
			continue
		}
		want := find(t, r.Case).Expected(r.Tier)
		if r.Outcome != want {
			t.Errorf("%s at %s is %s (%s of %q), want %s", r.Case, r.Tier, r.Outcome, r.Kind, r.Victim, want)
		}
	}
}

// Over the runtime's own pool the tiers and the oracle see what they see over the driver's,
// and accuse no twin.
func TestAsMuchIsFoundOverTheRuntimesOwnPool(t *testing.T) {
	m := OnSim()
	for _, r := range simResults(t) {
		tier, _ := TierNamed(r.Tier)
		v := m.run(ctx, find(t, r.Case), r.Variant == WithBug, tier, fencepost.Pool)
		if v.Outcome != r.Outcome || (v.Seen > 0) != (r.Seen > 0) {
			t.Errorf("%s:%s at %s is %s over the pool (%s of %q), and the oracle saw %d things; over the driver's it is %s, and %d: %s",
				r.Case, r.Variant, r.Tier, v.Outcome, v.Kind, v.Victim, v.Seen, r.Outcome, r.Seen, v.Text)
		}
	}
}

// maxSuspects is how many launches a person has to look at.
const maxSuspects = 3

func TestTheHuntNamesTheGuiltyAmongThree(t *testing.T) {
	for _, r := range simResults(t) {
		c := find(t, r.Case)
		if r.Tier != Tier2.Name || r.Variant != WithBug || r.Outcome != Found || c.Culprit == "" || c.Want == everywhere {
			continue
		}
		if r.Culprit == 0 || r.Suspects > maxSuspects {
			t.Errorf("%s: the culprit is number %d of %d suspects", r.Case, r.Culprit, r.Suspects)
		}
	}
}

func TestTheTableIsWhatTheCorpusSays(t *testing.T) {
	recorded, err := Recorded("testdata/gpu.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(Page)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(Document(simResults(t), recorded), "\n")
	for i, line := range strings.Split(string(kept), "\n") {
		if i >= len(want) || line != want[i] {
			t.Fatalf("dev/corpus.md is stale from line %d (make generate):\n%s\n%s", i+1, line, want[min(i, len(want)-1)])
		}
	}
}

// What a sanitizer sees: the programs with the guard off, most of them over
// single allocations.
func TestTheProgramsRunAlone(t *testing.T) {
	m := OnSim()
	for _, c := range All() {
		for _, variant := range c.Variants() {
			v := m.RunAlone(ctx, c, variant == WithBug)
			if v.Outcome == Broken || variant != WithBug && (v.Outcome != Silent || v.Seen > 0) {
				t.Errorf("%s:%s over %s is %s, the oracle saw %d things: %s", c.Name, variant, c.ToolBackend(), v.Outcome, v.Seen, v.Text)
			}
			untold := c.ToolBackend() == fencepost.Direct && slices.Contains(c.Kinds, names.FindingUndeclaredAccess) // no launch is announced over it
			if variant == WithBug && v.Seen == 0 && c.Unseen == "" && !untold {
				t.Errorf("%s over %s: the oracle saw nothing", c.Name, c.ToolBackend())
			}
		}
	}
}
