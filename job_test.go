package fencepost_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// A job that allocates and frees for hours keeps what it has, and frees all that at its end, in
// whatever order it freed the rest.
func TestALongJobKeepsTheBlocksThatItHas(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{})
	const atOnce, rounds = 300, 40
	e2e.Succeed(t, "the job", rt.Do(t.Context(), "long", func(j *fencepost.Job) error {
		var held []*cuda.Slice[byte]
		for round := range rounds {
			for range atOnce {
				s, err := fencepost.Alloc[byte](j, 64)
				if err != nil {
					return err
				}
				held = append(held, s)
			}
			for i := len(held) - 1 - round%3; i >= 0 && len(held) > atOnce/2; i = min(i, len(held)) - 2 {
				if err := held[i].Free(t.Context()); err != nil {
					return err
				}
				held = append(held[:i], held[i+1:]...)
			}
		}
		if kept, live := fencepost.KeptBlocks(j), rt.Stats().Live.Blocks; kept > 4*atOnce || uint64(kept) < live {
			t.Errorf("the job keeps %d blocks, and %d of the %d that it had are live", kept, live, atOnce*rounds)
		}
		return nil
	}))
	if st := rt.Stats(); st.Live != (core.Amount{}) {
		t.Errorf("live after the end: %+v", st.Live)
	}
}
