package runtimes_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// A number of 64 bits among the arguments of a launch may be no address, a negative one too: the
// oracle tells of what was not declared all the same, and does not look for ever.
func TestAnArgumentMayBeAnyNumber(t *testing.T) {
	touching := sim.Kernel{
		Name:    "touches",
		Declare: func(a sim.Args) []sim.Range { return []sim.Range{sim.Writes(a.Ptr(0), 50)} },
		Run:     func(x *sim.Exec) { sim.WriteSlice[byte](x, x.Args().Ptr(0)+50, 10)[0] = 1 },
	}
	for _, number := range []int64{-1, -2, -256, -4 << 20, math.MinInt64, math.MaxInt64, 0, 3} {
		rt := e2e.OpenDirty(t, fencepost.Config{Device: fencepost.Sim})
		kernel := must.Get(must.Get(rt.Load("any", nil, touching))(t).Kernel("touches"))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		must.Do(t, rt.Do(ctx, "job", func(j *fencepost.Job) error {
			s, err := fencepost.Upload(j, make([]byte, 100))
			if err != nil {
				return err
			}
			return j.Launch(kernel, cuda.Blocks1D(1, 1), fencepost.ReadWrites(s), fencepost.Value(number))
		}))
		must.Get(rt.Close(ctx))(t)
		cancel()
		if n := rt.Findings().Counts()[names.FindingUndeclaredAccess]; n != 1 {
			t.Errorf("with %d: %d undeclared accesses are told: %v", number, n, rt.Findings().Counts())
		}
	}
}
