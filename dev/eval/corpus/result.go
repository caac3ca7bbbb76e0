package corpus

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// The variants of a case.
const (
	WithBug = "bug"
	Twin    = "twin"
)

// ToolTier is the tier of results of compute-sanitizer.
const ToolTier = "compute-sanitizer"

// Result is a verdict as a line of JSON.
type Result struct {
	Device  string `json:"device"`
	Driver  string `json:"driver"`
	Case    string `json:"case"`
	Variant string `json:"variant"`
	Tier    string `json:"tier"`
	Verdict
	// Backend and Seconds, which it took, are those of a run under
	// compute-sanitizer.
	Backend string  `json:"backend,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
}

// Variants of a case: the bug and its twin, or the clean program.
func (c Case) Variants() []string {
	if c.Class == Clean {
		return []string{string(Clean)}
	}
	return []string{WithBug, Twin}
}

// Wanted is what a variant must come to at a tier.
func (c Case) Wanted(variant, tier string) Outcome {
	if variant == WithBug {
		return c.Expected(tier)
	}
	return Silent
}

// Accepts reports whether an outcome on a GPU is what it must be: the wanted
// one, or for a bug that a tier misses, that the driver refused it, or for one that is
// Unaddressed, late. Where a tier must find a bug, the bug must happen.
func (c Case) Accepts(variant, tier string, got Outcome) bool {
	want := c.Wanted(variant, tier)
	if c.Unaddressed && tier == Unmapped.Name && variant == WithBug {
		return got == Late
	}
	return got == want || got == DriverRefused && variant == WithBug && want == Missed
}

// Result runs a variant of a case at a tier.
func (m *Machine) Result(ctx context.Context, c Case, variant string, t Tier) (Result, error) {
	v := m.Run(ctx, c, variant == WithBug, t)
	device, version, err := m.Describe()
	if v.Outcome != Broken && v.Outcome != FalseAlarm && v.Outcome != DriverRefused {
		v.Text = ""
	}
	return Result{Device: device, Driver: version, Case: c.Name, Variant: variant, Tier: t.Name, Verdict: v}, err
}

// Simulated runs every case at every tier on simulated devices, and with the
// guard off.
func Simulated(ctx context.Context) ([]Result, error) {
	m := OnSim()
	var all []Result
	for _, c := range All() {
		for _, t := range append([]Tier{Bare}, c.Tiers()...) {
			for _, variant := range c.Variants() {
				r, err := m.Result(ctx, c, variant, t)
				if err != nil {
					return nil, err
				}
				all = append(all, r)
			}
		}
	}
	return all, nil
}

// Line is the result as it is kept.
func (r Result) Line() (string, error) {
	b, err := json.Marshal(r)
	return string(b) + "\n", err
}

// Recorded reads a file of results, none if there is no such file.
func Recorded(name string) ([]Result, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return ReadResults(text)
}

// ReadResults reads lines of JSON. Empty ones and those that begin with # are
// skipped.
func ReadResults(text []byte) ([]Result, error) {
	var all []Result
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var r Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if _, known := Find(r.Case); !known {
			return nil, fmt.Errorf("line %d: there is no case %q any more: run the corpus on the GPU again", n, r.Case)
		}
		all = append(all, r)
	}
	return all, lines.Err()
}
