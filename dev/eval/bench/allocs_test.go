//go:build !race

// The race detector makes pools leaky on purpose, so allocations are counted
// without it: scripts/test runs these tests apart.

package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

func TestHotPathsAllocateNothing(t *testing.T) {
	for _, c := range unsampled {
		for _, guard := range []fencepost.GuardMode{fencepost.GuardOff, fencepost.GuardLedger} {
			for _, backend := range []fencepost.Backend{fencepost.Async, fencepost.Pool} {
				t.Run(fmt.Sprintf("%s/guard=%s/%s", c.name, guard, backend), func(t *testing.T) {
					provided := func(cfg *fencepost.Config) { cfg.TracerProvider = c.provider }
					allocateNothing(c.ctx, t, service(t, &drivertest.Null{}, over(backend), guarded(guard), provided))
				})
			}
		}
	}
}

func allocateNothing(ctx context.Context, t *testing.T, s *stack) {
	t.Helper()
	x, y := s.lease(t).ID(), s.lease(t).ID()
	uses := blocks(t, s, x, 8)
	nothing := func(context.Context) error { return nil }
	pointers := make([]uint64, 0, len(uses))
	pointersOf := func(uses []core.Use) []uint64 {
		pointers = pointers[:0]
		for i := range uses {
			pointers = append(pointers, uses[i].Block.Ptr)
		}
		return pointers
	}
	for op, run := range map[string]func() error{
		"alloc and free":                       func() error { return s.pair(ctx, x) },
		"alloc and free on the default stream": func() error { return s.pair(ctx, core.DefaultStream) },
		"launch on one stream": func() error {
			return s.runtime.Launch(ctx, x, uses, nothing)
		},
		"launch on another stream": func() error {
			if err := s.runtime.Launch(ctx, x, uses, nothing); err != nil {
				return err
			}
			return s.runtime.Launch(ctx, y, uses, nothing)
		},
		"launch with pointers": func() error {
			return s.runtime.LaunchWith(ctx, core.UseRequest{Stream: x, Launch: "kernel", Uses: uses, Pointers: pointersOf(uses)}, nothing)
		},
		"prepare and abort": func() error {
			ticket, err := s.runtime.PrepareUse(ctx, core.UseRequest{Stream: x, Uses: uses})
			if err != nil {
				return err
			}
			return s.runtime.AbortUse(ctx, ticket)
		},
	} {
		t.Run(op, func(t *testing.T) {
			allocs := testing.AllocsPerRun(2000, func() {
				if err := run(); err != nil {
					t.Fatal(err)
				}
			})
			if allocs != 0 {
				t.Errorf("%v allocations an operation", allocs)
			}
		})
	}
}
