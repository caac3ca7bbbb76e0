package corpus

import (
	"fmt"
	"strings"
)

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
