//go:build !race

// The race detector makes pools leaky on purpose, so allocations are counted
// without it: scripts/test runs these tests apart.

package telemetry_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestUnsampledOperationsDoNotAllocate(t *testing.T) {
	for _, s := range free {
		r, ctx := s.open(t)
		block := must.Get(r.Allocate(ctx, core.Request{Bytes: 64}))(t)
		req := core.UseRequest{Stream: 1, Uses: uses(core.Write, block)}
		for name, operation := range map[string]func() error{
			"allocate":           func() error { _, err := r.Allocate(ctx, core.Request{Bytes: 64}); return err },
			"deallocate":         func() error { _, err := r.Deallocate(ctx, block.ID); return err },
			"prepare and finish": func() error { return launchPair(ctx, r, req) },
		} {
			if n := allocs(t, operation); n != 0 {
				t.Errorf("%s: %s allocates %v times", s.name, name, n)
			}
		}
	}
}
