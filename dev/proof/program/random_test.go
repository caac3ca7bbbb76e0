package program

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestRandomProgramsMakeSense(t *testing.T) {
	b := Bounds{Streams: 6, Blocks: MaxBlocks, Ops: 60, Kinds: every}
	var kindsMade [kinds]int
	largest := 0
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 0))
		p := Draw(b, rng.IntN)
		if len(p) != 60 {
			t.Fatalf("seed %d: %d operations", seed, len(p))
		}
		var s state
		for i, o := range p {
			if o.Kind == Alloc && o.Block != s.made || o.Uses()&^s.live != 0 || o.Kind == Free && !s.live.Has(o.Block) || o.IsLaunch() && o.Uses() == 0 {
				t.Fatalf("seed %d: operation %d of %v makes no sense where it stands", seed, i, p)
			}
			kindsMade[o.Kind]++
			largest = max(largest, o.Uses().Len())
			s = s.after(o)
		}
	}
	if slices.Contains(kindsMade[:], 0) || largest < 10 {
		t.Errorf("operations by kind: %v; the largest launch has %d blocks", kindsMade, largest)
	}
}
