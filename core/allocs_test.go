//go:build !race

// The race detector makes pools leaky on purpose, so allocations are counted
// without it: scripts/test runs these tests apart.

package core_test

import (
	"context"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

func TestLaunchAllocatesNothing(t *testing.T) {
	rt := newRuntime(t, &bare{}, nil)
	uses := []core.Use{{Block: core.BlockID{Ptr: 1, Generation: 2}, Access: core.Read}, {Block: core.BlockID{Ptr: 2, Generation: 1}, Access: core.Write}}
	ctx, launch := t.Context(), func(context.Context) error { return nil }
	n := testing.AllocsPerRun(1000, func() {
		if err := rt.Launch(ctx, 1, uses, launch); err != nil {
			t.Fatal(err)
		}
	})
	mustBe(t, "allocations of a launch", n, 0.0)
}
