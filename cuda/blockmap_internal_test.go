package cuda

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

func TestBlocksAtRegularDistancesAreFoundWithoutTheLock(t *testing.T) {
	for _, stride := range []core.Generation{1, 2, 3, 16, 64, 1024, 1 << 20} {
		var m blockMap
		const n = 1000
		for i := range core.Generation(n) {
			m.insert(1+i*stride, new(block))
		}
		missed := 0
		for i := range core.Generation(n) {
			g := 1 + i*stride
			if m.load(g) == nil {
				missed++
			}
			if b := m.find(g); b == nil || b.generation.Load() != uint64(g) {
				t.Fatalf("stride %d: generation %d is not found", stride, g)
			}
		}
		if missed > 0 {
			t.Errorf("stride %d: %d of %d lookups need the lock", stride, missed, n)
		}
	}
}

func TestABlockMapForgetsWhatIsRemoved(t *testing.T) {
	var m blockMap
	for g := core.Generation(1); g <= 500; g++ {
		m.insert(g, new(block))
		if g > 100 {
			m.remove(g - 100)
		}
	}
	for g := core.Generation(1); g <= 500; g++ {
		if found := m.find(g) != nil; found != (g > 400) {
			t.Errorf("generation %d: found %v", g, found)
		}
	}
	seen := 0
	m.each(func(*block) { seen++ })
	if seen != 100 || m.n != 100 {
		t.Errorf("%d blocks, counted %d", seen, m.n)
	}
}
