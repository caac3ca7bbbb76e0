package corpus

import (
	"fmt"
	"slices"
	"strings"
)

// totals counts by class and tier.
func (d *document) totals() {
	d.line("\n## Totals\n")
	d.line("Found, late and missed by class, on the simulated device; alarms are of twins and clean programs, at any tier.\n")
	d.line("| class | cases | tier 0 | tier 1 | tier 2 | compute-sanitizer |")
	d.line("| --- | --- | --- | --- | --- | --- |")
	for _, class := range Classes {
		d.totalsOf(string(class), func(c Case) bool { return c.Class == class })
	}
	d.totalsOf("all bugs", func(c Case) bool { return c.Class != Clean })
	programs, alarms := d.alarms()
	d.line("\nTwins and clean programs: %d, run at three tiers; false alarms: %d.", programs, alarms)
}

func (d *document) totalsOf(name string, in func(Case) bool) {
	cases := slices.DeleteFunc(All(), func(c Case) bool { return !in(c) })
	row := fmt.Sprintf("| %s | %d |", name, len(cases))
	for _, t := range Tiers {
		n := map[Outcome]int{}
		for _, c := range cases {
			r, _ := d.sim.of(c, WithBug, t.Name)
			n[r.Outcome]++
		}
		row += fmt.Sprintf(" %d / %d / %d |", n[Found], n[Late], n[Missed])
	}
	ran, found := 0, 0
	for _, c := range cases {
		if r, ok := d.gpu.of(c, WithBug, ToolTier); ok {
			ran++
			if r.Outcome == Found {
				found++
			}
		}
	}
	if ran == 0 {
		d.line("%s not run |", row)
		return
	}
	d.line("%s %d of %d reported |", row, found, ran)
}

// alarms counts the programs without a bug, and what was reported of them.
func (d *document) alarms() (programs, alarms int) {
	for _, c := range All() {
		variant := c.Variants()[len(c.Variants())-1]
		programs++
		for _, t := range c.Tiers() {
			for _, rs := range []results{d.sim, d.gpu} {
				if r, ok := rs.of(c, variant, t.Name); ok && r.Outcome != Silent {
					alarms++
				}
			}
		}
	}
	return programs, alarms
}

// class is the table of one class, and why its misses are.
func (d *document) class(class Class) {
	d.line("\n## %s%s\n", strings.ToUpper(string(class[:1])), class[1:])
	d.line("| case | tier 0 | tier 1 | tier 2 | unmapping | oracle | compute-sanitizer |")
	d.line("| --- | --- | --- | --- | --- | --- | --- |")
	var notes []string
	for _, c := range Bugs() {
		if c.Class != class {
			continue
		}
		d.line("| %s | %s | %s | %s | %s | %s | %s |", c.Name, d.cell(c, Tier0), d.cell(c, Tier1), d.cell(c, Tier2), d.unmapping(c), d.oracle(c), d.tool(c))
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
			d.line("- **%s**: %s.", c.Name, c.What)
		}
	}
}
