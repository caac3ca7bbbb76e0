package corpus

import (
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
)

// oracleSource marks what a simulated device's oracle found; it is no tier's.
const oracleSource = "sim-oracle"

// watch collects the findings of one run.
type watch struct {
	mu    sync.Mutex
	found []noted
	ended bool
	// victims are the blocks that the program harms; none is set if it
	// harms none in particular.
	victims []core.Generation
	none    bool
	// refused joins the errors of the calls that are the bug.
	refused error
	// byDriver is the driver's refusal of the call that is the bug.
	byDriver error
}

// noted is a finding; late is set if it came after the program's end.
type noted struct {
	core.Finding
	late bool
}

func (v *watch) note(f core.Finding) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.found = append(v.found, noted{f, v.ended})
}

func (v *watch) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = true
}

// has reports whether there is a finding of a kind by now.
func (v *watch) has(kind core.FindingKind) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.found, func(n noted) bool { return n.Kind == kind })
}

// tellsLoss reports whether there is a finding of a lost device.
func (v *watch) tellsLoss() bool {
	found, _ := v.split()
	return slices.ContainsFunc(found, func(n noted) bool {
		return n.Kind == names.FindingStickyError || n.Kind == names.FindingIllegalAccess
	})
}

// split returns what the runtime and the guard found, and how much an oracle
// saw.
func (v *watch) split() (found []noted, oracle int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, n := range v.found {
		if n.Source == oracleSource {
			oracle++
			continue
		}
		found = append(found, n)
	}
	return found, oracle
}

// Victim names the block that the bug harms. Of several one is enough.
func (w *World) Victim(blocks ...core.BlockID) {
	for _, id := range blocks {
		w.watch.victims = append(w.watch.victims, id.Generation)
	}
}

// HarmsNone says that the bug harms no block in particular.
func (w *World) HarmsNone() { w.watch.none = true }

// right reports whether a finding names a victim.
func (v *watch) right(f core.Finding) bool {
	if f.Victim.ID.Generation == 0 || f.Kind == names.FindingStrayWrite { // which is into a canary, no block of the program's
		return v.none
	}
	return slices.Contains(v.victims, f.Victim.ID.Generation)
}
