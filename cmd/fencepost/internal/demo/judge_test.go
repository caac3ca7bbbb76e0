package demo

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// The oracle may name the block that has the victim's memory by then, of the planted
// kind alone; the guard may not.
func TestTheOracleMayNameTheNextOwnerOfTheMemory(t *testing.T) {
	p := &Plant{kind: core.FindingUseAfterFreeWrite, victim: core.Block{ID: core.BlockID{Ptr: 4096, Generation: 1}, Bytes: 256}}
	at := func(source string, kind core.FindingKind, ptr uint64) core.Finding {
		return core.Finding{Source: source, Kind: kind, Victim: core.Block{ID: core.BlockID{Ptr: ptr, Generation: 2}}}
	}
	for name, c := range map[string]struct {
		f    core.Finding
		want bool
	}{
		"its memory":    {at("sim-oracle", p.kind, 4096+255), true},
		"behind it":     {at("sim-oracle", p.kind, 4096+256), false},
		"before it":     {at("sim-oracle", p.kind, 4095), false},
		"another kind":  {at("sim-oracle", core.FindingUseAfterFreeRead, 4096), false},
		"said by guard": {at("debugguard", p.kind, 4096), false},
	} {
		if got := p.inItsMemory(c.f); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
