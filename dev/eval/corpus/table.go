package corpus

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/core/names"
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
  end of the program's Drain, or where that is longer while the dump of a lost device is read. "suspect 1 of 2" is the place of the guilty launch among those that the finding names, "culprit" that it names no other; where no such
  words stand the finding is the guilty call's own, or no launch was announced that could be named.
- **late**: one of such a kind without the right victim, or about the victim with another kind, or only when the runtime was closed.
- **missed**: nothing of the sort; the reason is below the table.
- **refused**: on a GPU the driver refuses the guilty call itself. It checks the ranges of copies and fills against its allocations, so
  such a bug cannot happen there unless something else is allocated around the block, as a red zone or quarantine is.

"Unmapping" is ` + "`hunt:bisect+unmap`" + `, for the cases that reach freed memory: freed blocks are taken off the map once the device has
passed the free, and a later access is an illegal address. That loses the device, whose core dump names access, launch and block.

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
// flight at that moment, and differ from run to run.
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

// agreement counts the verdicts on bugs at the tiers that are recorded of a GPU,
// and those that are the simulated device's, too.
func (d *document) agreement() (same, all int) {
	for _, c := range Bugs() {
		for _, t := range c.Tiers() {
			if r, ok := d.gpu.of(c, WithBug, t.Name); ok {
				all++
				if verdictText(r) == d.cell(c, t) {
					same++
				}
			}
		}
	}
	return same, all
}

// gpuName is what the column of the GPU is called, empty if nothing is recorded
// of the tiers there.
func (d *document) gpuName() string {
	for _, r := range d.recorded {
		if r.Tier != ToolTier {
			return r.Device
		}
	}
	return ""
}

// onGPU says where the GPU's verdicts on a case differ from the simulated
// device's.
func (d *document) onGPU(c Case) string {
	var differing []string
	for _, t := range c.Tiers() {
		for _, variant := range c.Variants() {
			text, want := string(NotRun), string(Silent)
			if r, ok := d.gpu.of(c, variant, t.Name); ok {
				text = verdictText(r)
			}
			name := t.Name
			switch variant {
			case WithBug:
				want = d.cell(c, t)
			case Twin:
				name += ", twin"
			}
			if text != want {
				differing = append(differing, name+": "+text)
			}
		}
	}
	return strings.Join(differing, "; ")
}

// tool is compute-sanitizer's verdict on a case and on its twin.
func (d *document) tool(c Case) string {
	r, ok := d.gpu.of(c, WithBug, ToolTier)
	if !ok || r.Outcome == NotRun {
		return string(NotRun)
	}
	text := fmt.Sprintf("%s (%s)", r.Outcome, r.Backend)
	if twin, ok := d.gpu.of(c, Twin, ToolTier); ok && twin.Outcome != Silent {
		text += ", twin: " + string(twin.Outcome)
	}
	return text
}

// loud says what was made of a clean program that is not silent on the GPU.
func (d *document) loud(c Case) string {
	text := ""
	if d.gpuName() != "" && d.onGPU(c) != "" {
		text = fmt.Sprintf(" On the GPU: %s.", d.onGPU(c))
	}
	if r, ok := d.gpu.of(c, string(Clean), ToolTier); ok && r.Outcome != Silent {
		text += fmt.Sprintf(" compute-sanitizer: %s (%s).", r.Outcome, r.Backend)
	}
	return text
}

// totals counts by class and tier.
func (d *document) totals() {
	d.line("\n## Totals\n")
	d.line("Found / late / missed by class; what is refused, broken or not run is counted apart.\n")
	d.line("| class | cases | device | tier 0 | tier 1 | tier 2 | compute-sanitizer |")
	d.line("| --- | --- | --- | --- | --- | --- | --- |")
	for _, class := range Classes {
		d.totalsOf(string(class), func(c Case) bool { return c.Class == class })
	}
	d.totalsOf("all bugs", func(c Case) bool { return c.Class != Clean })
	programs, alarms := d.alarms(d.sim, Case.Tiers)
	d.line("\nTwins and clean programs at the tiers, on the simulated device: %d runs; false alarms and broken: %d.", programs, alarms)
	if name := d.gpuName(); name != "" {
		programs, alarms = d.alarms(d.gpu, Case.Tiers)
		d.line("On the %s: %d runs; false alarms and broken: %d.", name, programs, alarms)
	}
	if programs, alarms = d.alarms(d.gpu, func(Case) []Tier { return []Tier{{Name: ToolTier}} }); programs > 0 {
		d.line("Under compute-sanitizer: %d runs; false alarms and broken: %d.", programs, alarms)
	}
}

// totalsOf is a row of the simulated device, and one of the GPU if anything is
// recorded of it.
func (d *document) totalsOf(name string, in func(Case) bool) {
	cases := slices.DeleteFunc(All(), func(c Case) bool { return !in(c) })
	row := func(device string, rs results, tool string) {
		text := fmt.Sprintf("| %s | %d | %s |", name, len(cases), device)
		for _, t := range Tiers {
			text += fmt.Sprintf(" %s |", rs.count(cases, t.Name))
		}
		d.line("%s %s |", text, tool)
	}
	if len(d.recorded) == 0 {
		row("simulated", d.sim, string(NotRun))
		return
	}
	row("simulated", d.sim, "")
	row(d.recorded[0].Device, d.gpu, d.gpu.count(cases, ToolTier))
}

// count is how many of the cases came to what at a tier.
func (rs results) count(cases []Case, tier string) string {
	n := map[Outcome]int{}
	for _, c := range cases {
		if r, ok := rs.of(c, WithBug, tier); ok {
			n[r.Outcome]++
		} else {
			n[NotRun]++
		}
	}
	if n[NotRun] == len(cases) {
		return string(NotRun)
	}
	text := fmt.Sprintf("%d / %d / %d", n[Found], n[Late], n[Missed])
	for _, apart := range []Outcome{DriverRefused, Broken, NotRun} {
		if n[apart] > 0 {
			text += fmt.Sprintf(", %d %s", n[apart], apart)
		}
	}
	return text
}

// alarms counts the runs of programs without a bug at tiers, and those of which
// something was reported.
func (d *document) alarms(rs results, tiers func(Case) []Tier) (runs, alarms int) {
	for _, c := range All() {
		variants := c.Variants()
		for _, t := range tiers(c) {
			r, ok := rs.of(c, variants[len(variants)-1], t.Name)
			if !ok || r.Outcome == NotRun {
				continue
			}
			runs++
			if r.Outcome != Silent {
				alarms++
			}
		}
	}
	return runs, alarms
}

// class is the table of one class, and why its misses are.
func (d *document) class(class Class) {
	d.line("\n## %s%s\n", strings.ToUpper(string(class[:1])), class[1:])
	head, rule := "| case | tier 0 | tier 1 | tier 2 | unmapping | oracle |", "| --- | --- | --- | --- | --- | --- |"
	gpu := d.gpuName()
	if gpu != "" {
		head, rule = head+" "+gpu+", where different |", rule+" --- |"
	}
	d.line("%s compute-sanitizer |\n%s --- |", head, rule)
	var notes []string
	for _, c := range Bugs() {
		if c.Class != class {
			continue
		}
		row := fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", c.Name, d.cell(c, Tier0), d.cell(c, Tier1), d.cell(c, Tier2), d.unmapping(c), d.oracle(c))
		if gpu != "" {
			row += fmt.Sprintf(" %s |", d.onGPU(c))
		}
		d.line("%s %s |", row, d.tool(c))
		notes = append(notes, note(c))
	}
	d.line("\n%s", strings.Join(notes, "\n"))
}

// note says what a case is, and why what does not see it does not.
func note(c Case) string {
	text := fmt.Sprintf("- **%s**: %s.", c.Name, c.What)
	if c.Why != "" {
		text += fmt.Sprintf(" Where it is not found: %s.", c.Why)
	}
	if c.Unseen != "" {
		text += fmt.Sprintf(" The oracle is silent: %s.", c.Unseen)
	}
	return text
}

// clean lists the clean programs.
func (d *document) clean() {
	d.line("\n## Clean programs\n")
	d.line("Each must be silent at every tier.\n")
	for _, c := range All() {
		if c.Class == Clean {
			d.line("- **%s**: %s.%s", c.Name, c.What, d.loud(c))
		}
	}
}
