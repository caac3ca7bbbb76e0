package corpus

import (
	"fmt"
	"slices"
	"strings"
)

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
