package corpus

import (
	"fmt"
	"strings"

	"github.com/fencepost-gpu/fencepost/internal/names"
)

// results finds a result by case, variant and tier.
type results map[[3]string]Result

func index(all []Result) results {
	found := results{}
	for _, r := range all {
		found[[3]string{r.Case, r.Variant, r.Tier}] = r
	}
	return found
}

func (rs results) of(c Case, variant, tier string) (Result, bool) {
	r, ok := rs[[3]string{c.Name, variant, tier}]
	return r, ok
}

// Page is the document, from the folder of this package.
const Page = "../../corpus.md"

// Document is dev/corpus.md, made of results of the simulated device and
// of recorded ones.
func Document(simulated, recorded []Result) string {
	d := document{sim: index(simulated), gpu: index(recorded), recorded: recorded}
	d.line("%s", heading)
	d.provenance()
	d.totals()
	for _, class := range Classes {
		d.class(class)
	}
	d.clean()
	return d.String()
}

const heading = `# The guard's corpus

<!-- Made by "make generate"; a test compares. Do not edit. -->

Small programs over the public API with planted bugs, the same programs without them (the twins), and clean programs that look
suspicious: package ` + "`dev/eval/corpus`" + `. Each runs at every tier of the debug guard.

- **found**: a finding by the guard or the runtime, of a kind that the case names and about the block that was harmed, no later than the
  end of the program's Drain. "suspect 1 of 2" is the place of the guilty launch among those that the finding names, "culprit" that it names no other; where no such
  words stand the finding is the guilty call's own, or no launch was announced that could be named.
- **late**: one of such a kind without the right victim, or about the victim with another kind, or only when the runtime was closed.
- **missed**: nothing of the sort; the reason is below the table.
- **refused**: on a GPU the driver refuses the guilty call itself. It checks the ranges of copies and fills against its allocations, so
  such a bug cannot happen there unless something else is allocated around the block, as a red zone or quarantine is.

"Unmapping" is ` + "`hunt:bisect+unmap`" + `, for the cases that reach freed memory: freed blocks are taken off the map once the device has
passed the free, and a later access is an illegal address. That loses the device and names no block, so it is late by definition.

Tier 0 is ` + "`ledger`" + `, tier 1 ` + "`sample:1`" + ` (every block is sampled), tier 2 ` + "`hunt:bisect`" + `. "Oracle" is the judge that the simulated
device has built in, in a run with the guard off: it proves that the bug happens. No tier is credited with what it sees. For
compute-sanitizer (memcheck with stream-ordered races, the guard off) the backend stands beside its verdict: "direct" gives each block an
allocation of its own, which is the best that the tool can get, "async" is the stream-ordered pool.`

type document struct {
	strings.Builder
	sim, gpu results
	recorded []Result
}

func (d *document) line(format string, args ...any) {
	d.WriteString(fmt.Sprintf(format, args...) + "\n")
}

// provenance says what was run where.
func (d *document) provenance() {
	if len(d.recorded) == 0 {
		d.line("\nThe tiers were run on the simulated device. Nothing is recorded of a GPU and of compute-sanitizer yet: `scripts/gpu-corpus` does that.")
		return
	}
	r := d.recorded[0]
	d.line("\nThe tiers were run on the simulated device. `scripts/gpu-corpus` recorded `dev/eval/corpus/testdata/gpu.jsonl` on an %s with the driver of %s.", r.Device, r.Driver)
	if same, all := d.agreement(); all > 0 {
		d.line("There %d of %d verdicts on bugs at the tiers are the same as on the simulated device, to the number of suspects; the other %d stand in the column of the GPU.", same, all, all-same)
	}
}

// cell is the verdict of a tier on a case, on the simulated device.
func (d *document) cell(c Case, t Tier) string {
	r, _ := d.sim.of(c, WithBug, t.Name)
	return verdictText(r)
}

// verdictText leaves out the suspects of a lost device: they are what was in
// flight when somebody asked, and differ from run to run.
func verdictText(r Result) string {
	switch {
	case r.Kind == names.FindingStickyError:
		return fmt.Sprintf("%s %s", r.Outcome, r.Kind)
	case r.Outcome == Broken || r.Kind == "":
		return string(r.Outcome)
	case r.Culprit == 1 && r.Suspects == 1:
		return fmt.Sprintf("**%s** %s, culprit", r.Outcome, r.Kind)
	case r.Culprit > 0:
		return fmt.Sprintf("**%s** %s, suspect %d of %d", r.Outcome, r.Kind, r.Culprit, r.Suspects)
	case r.Outcome == Found:
		return "**found** " + string(r.Kind)
	}
	return fmt.Sprintf("%s %s", r.Outcome, r.Kind)
}

func (d *document) unmapping(c Case) string {
	if !c.Unmapped {
		return ""
	}
	return d.cell(c, Unmapped)
}

func (d *document) oracle(c Case) string {
	r, _ := d.sim.of(c, WithBug, Bare.Name)
	if r.Seen > 0 {
		return "sees it"
	}
	return "silent"
}
