package demo

import (
	"errors"
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// Over the driver's pool no other stream has the victim's memory when a misuse after the free comes, however eagerly
// others allocate beside: the oracle names the victim, and the planted kind.
func TestAFreedVictimsMemoryIsNobodysYet(t *testing.T) {
	plant, err := NewPlant(names.FindingUseAfterFreeWrite)
	must.Do(t, err)
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Resource: fencepost.Async, Guard: "off", OnFinding: plant.Watch})
	must.Do(t, err)
	plant.rt = rt
	hasIt := func(others []core.Block) bool {
		return slices.ContainsFunc(others, func(b core.Block) bool { return b.ID.Ptr == plant.victim.ID.Ptr })
	}
	err = plant.freed(t.Context(), func(victim core.Block, on *cuda.Lease) error {
		if hasIt(allocateBeside(t, plant)) {
			t.Errorf("another stream has the victim's memory, %#x", victim.ID.Ptr)
		}
		return rt.Driver().MemsetAsync(victim.ID.Ptr+4096, 0x42, 64, on.Handle())
	})
	must.Do(t, err)
	if !hasIt(allocateBeside(t, plant)) {
		t.Error("the victim's memory is not what the next block gets either: nothing was at stake")
	}
	if got := plant.Judge(); !got.Found || got.Why != "seen by sim-oracle" {
		t.Errorf("%+v", got)
	}
	if _, err := rt.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// allocateBeside allocates blocks of the victim's size on another stream, and frees them.
func allocateBeside(t *testing.T, p *Plant) (blocks []core.Block) {
	err := p.onStream(t.Context(), func(on *cuda.Lease) error {
		for range 3 {
			b, err := p.rt.Allocate(t.Context(), core.Request{Bytes: plantBytes, Stream: on.ID(), Tag: "another"})
			if err != nil {
				return err
			}
			blocks = append(blocks, b)
		}
		return errors.Join(p.giveBack(t.Context(), blocks), p.rt.Streams().Synchronize(t.Context(), on.ID()))
	})
	must.Do(t, err)
	return blocks
}
