package refuse_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

// Whatever figures a pool's look finds, of whatever moments, the refusal's parts add up, also with
// holders that a later look found.
func TestTheFiguresOfAPoolsRefusalAddUp(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 3))
	figure := func() uint64 {
		if random.IntN(9) == 0 {
			return ^uint64(0) - random.Uint64N(3)
		}
		return random.Uint64N(1 << random.IntN(12))
	}
	for range 20_000 {
		e := core.OutOfMemoryError{Requested: figure(), Held: figure(), May: figure(), Used: figure(), Behind: figure(),
			Fragmented: figure(), Largest: figure()}
		refuse.Memory(&e)
		for range 2 {
			if err := refuse.UntrueMemory(&e); err != nil || e.Used+e.Cached != e.Held || e.Behind > e.Cached ||
				e.Fragmented > e.Cached-e.Behind {
				t.Fatalf("%v: %+v", err, e)
			}
			e.Holders = []core.Holder{{State: core.Live, Bytes: random.Uint64N(1 << 11)}, {State: core.Quarantined, Bytes: random.Uint64N(1 << 11)},
				{State: core.Claimed, Bytes: 1 << 50}}
			refuse.Named(&e, e.Holders[0].Bytes+e.Holders[1].Bytes)
		}
	}
	e := core.OutOfMemoryError{Held: 10, Used: 5, May: 10, Holders: []core.Holder{{State: core.Live, Bytes: 6}}}
	if refuse.Memory(&e); refuse.UntrueMemory(&e) == nil {
		t.Errorf("holders with more than is in use: %+v", e)
	}
	e.Holders, e.Cause = nil, core.ShortageInUse
	if refuse.UntrueMemory(&e) == nil {
		t.Errorf("a cause that the figures do not show: %+v", e)
	}
}
