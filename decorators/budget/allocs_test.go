//go:build !race

package budget

import (
	"context"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

func TestAPairAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	d := newDevice()
	d.queues[1] = make([]core.Block, 0, 4096)
	lending := newBudget(t, d, Config{Limit: 100})
	last := mustAllocate(t, lending, core.Request{Bytes: 90, Stream: 1})
	r := newBudget(t, &leaf{}, Config{Limit: 1 << 20})
	c := mustReserve(t, r, 4096)
	mustAllocate(t, r, core.Request{Bytes: 256, Stream: 1, Claim: c.ID})
	for name, pair := range map[string]func(){
		"general": func() { mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 256, Stream: 1})) },
		"claim":   func() { mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 256, Stream: 1, Claim: c.ID})) },
		"in order": func() {
			_, _ = lending.Deallocate(ctx, last.ID)
			last = mustAllocate(t, lending, core.Request{Bytes: 90, Stream: 1})
		},
	} {
		if n := testing.AllocsPerRun(1000, pair); n != 0 {
			t.Errorf("%s: %v allocations a pair", name, n)
		}
	}
}
