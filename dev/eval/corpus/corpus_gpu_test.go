package corpus

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// The corpus at every tier. What it comes to is added to the file that
// FENCEPOST_CORPUS_RESULTS names; scripts/gpu-corpus makes the record of it.
func TestTheCorpusOnTheGPU(t *testing.T) {
	m, err := machine(false)
	if errors.Is(err, libcuda.ErrNoDriver) {
		t.Skip(err)
	}
	must.Do(t, err)
	defer func() {
		expect.Success(t, m.Close())
	}()
	for _, c := range All() {
		for _, tier := range c.Tiers() {
			for _, variant := range c.Variants() {
				r := onGPU(t, m, c, variant, tier)
				keepResult(t, r)
				if !c.Accepts(variant, tier.Name, r.Outcome) {
					t.Errorf("%s:%s at %s is %s, want %s: %s of %q, %s", c.Name, variant, tier.Name, r.Outcome, c.Wanted(variant, tier.Name), r.Kind, r.Victim, r.Text)
				}
			}
		}
	}
}

// onGPU runs a program, one that loses the device in a process of its own.
func onGPU(t *testing.T, m *Machine, c Case, variant string, tier Tier) Result {
	t.Helper()
	if !tier.OwnProcess && (!c.Faults || variant != WithBug) {
		r, err := m.Result(t.Context(), c, variant, tier)
		must.Do(t, err)
		return r
	}
	all, err := ReadResults(inProcess(t, c.Name+":"+variant, tierVariable+"="+tier.Name))
	if err != nil || len(all) != 1 {
		t.Fatalf("%s:%s at %s in a process of its own: %d results, %v", c.Name, variant, tier.Name, len(all), err)
	}
	return all[0]
}

// inProcess returns what a process of this binary prints for one program.
func inProcess(t *testing.T, what string, variables ...string) []byte {
	t.Helper()
	binary, err := os.Executable()
	must.Do(t, err)
	limited, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(limited, binary)
	cmd.Env = append(append(os.Environ(), caseVariable+"="+what), variables...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", what, err, out)
	}
	return out
}

func keepResult(t *testing.T, r Result) {
	t.Helper()
	name := os.Getenv(resultsVariable)
	if name == "" {
		return
	}
	line, err := r.Line()
	must.Do(t, err)
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must.Do(t, err)
	if _, err := f.WriteString(line); err != nil {
		t.Error(err)
	}
	expect.Success(t, f.Close())
}
