package runtimes_test

import (
	"context"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// leakOverrun writes behind a block that nobody frees, and leaves another one
// unharmed.
func leakOverrun(t *testing.T, rt *fencepost.Runtime) (victim core.Block) {
	t.Helper()
	s := e2e.Lease(t, rt, "s")
	_ = e2e.Allocate(t, rt, 1000, s.ID(), "bystander")
	victim = e2e.Allocate(t, rt, 1000, s.ID(), "victim")
	e2e.Succeed(t, "launch", rt.LaunchNamed(t.Context(), "off_by_one", s.ID(), []core.Use{{Block: victim.ID, Access: core.Write}}, func(context.Context) error {
		return rt.Driver().MemsetAsync(victim.ID.Ptr, 0, victim.Requested+16, s.Handle()) // no red zone has a 0
	}))
	e2e.Succeed(t, "release", s.Release())
	return victim
}

// A leak with an overrun is both, in every mode that has red zones.
func TestTheRedZonesOfABlockThatIsNeverFreedAreComparedByClose(t *testing.T) {
	for _, guard := range []string{"sample:1", "sample", "hunt", "hunt:bisect", "hunt:delay", "hunt:unmap", "hunt:bisect+delay+unmap"} {
		t.Run(guard, func(t *testing.T) {
			rt := e2e.OpenDirty(t, fencepost.Config{Driver: e2e.Blind(t), Guard: fencepost.GuardMode(guard),
				GuardConfig: debugguard.Config{HuntTags: []core.Tag{"victim", "bystander"}}})
			victim := leakOverrun(t, rt)
			left, err := rt.Close(t.Context())
			if err != nil || len(left.Leaks) != 2 {
				t.Errorf("%v; leaked %+v", err, left.Leaks)
			}
			f := e2e.Single(t, rt, names.FindingOutOfBoundsWrite)
			e2e.Names(t, f, "debugguard", victim)
			if f.Offset != 1000 || f.BadBytes != 16 || len(f.Suspects) == 0 || f.Suspects[0].Launch != "off_by_one" || f.Victim.State != core.Live {
				t.Errorf("found %+v", f)
			}
			if n := rt.Findings().Counts()[names.FindingLeak]; n != 2 {
				t.Errorf("%d leaks are findings, want 2", n)
			}
			if g := rt.Guard().GuardStats(); g.Unchecked != 0 || g.Checks != 0 {
				t.Errorf("something was left out: %+v", g)
			}
		})
	}
}

// A lost device is asked nothing, and nothing is said of what nobody can know.
func TestCloseComparesNothingOnALostDevice(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{Driver: e2e.Blind(t), Guard: "hunt"})
	_ = leakOverrun(t, rt)
	e2e.Simulated(rt).LoseContext(driver.IllegalAddress)
	_, _ = rt.Allocate(t.Context(), core.Request{Bytes: 64}) // meets the loss
	_, _ = rt.Close(t.Context())
	if c := rt.Findings().Counts(); c[names.FindingOutOfBoundsWrite] != 0 || c[names.FindingLeak] != 0 {
		t.Errorf("of a lost device: %v", c)
	}
}
