package debugguard_test

import (
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
)

// delays runs launches and returns how many were delayed and for how long in
// all.
func delays(t *testing.T, hunt debugguard.HuntConfig, launches int) (uint64, time.Duration) {
	t.Helper()
	b := newBench(t, debugguard.Hunt, func(c *debugguard.Config) { c.Advanced.Hunt = hunt })
	block := b.alloc(64)
	for range launches {
		b.launch("work", 1, func() {}, block)
	}
	b.free(block)
	b.empty()
	b.want()
	return b.guard.GuardStats().Delays, b.mem.delayed
}

func TestAQuarterOfTheLaunchesIsDelayedByTheMean(t *testing.T) {
	const n = 4000
	hunt := debugguard.HuntConfig{Delay: time.Millisecond, DelaySeed: 3}
	count, total := delays(t, hunt, n)
	if count < n/5 || count > n*3/10 {
		t.Errorf("%d of %d launches were delayed", count, n)
	}
	if mean := total / time.Duration(count); mean < 900*time.Microsecond || mean > 1100*time.Microsecond {
		t.Errorf("the mean is %v", mean)
	}
	again, totalAgain := delays(t, hunt, n)
	hunt.DelaySeed = 4
	other, totalOther := delays(t, hunt, n)
	if again != count || totalAgain != total || totalOther == total {
		t.Errorf("the seed does not decide: %d and %v, again %d and %v, with another seed %d and %v", count, total, again, totalAgain, other, totalOther)
	}
	if none, _ := delays(t, debugguard.HuntConfig{}, 100); none != 0 {
		t.Errorf("%d delays without being asked", none)
	}
}

func TestDelaysComeAndGoWithTheSetting(t *testing.T) {
	b := newBench(t, debugguard.Sample)
	launch := func() uint64 {
		before := b.guard.GuardStats().Delays
		block := b.alloc(64)
		for range 100 {
			b.launch("work", 1, func() {}, block)
		}
		b.free(block)
		return b.guard.GuardStats().Delays - before
	}
	for _, s := range []struct {
		setting string
		delayed bool
	}{{"sample", false}, {"hunt", false}, {"hunt:delay", true}, {"hunt:bisect", false}, {"ledger", false}, {"hunt:delay", true}, {"off", false}} {
		setting, err := debugguard.ParseMode(s.setting)
		if err == nil {
			err = b.guard.Apply(ctx, setting)
		}
		if n := launch(); err != nil || (n > 0) != s.delayed {
			t.Errorf("%s: %d delays, %v", s.setting, n, err)
		}
	}
	b.empty()
	b.want()
}

func TestALaunchGoesOnWithoutADelayThatFails(t *testing.T) {
	b := newBench(t, debugguard.Hunt, func(c *debugguard.Config) { c.Advanced.Hunt.Delay = time.Microsecond })
	block := b.alloc(64)
	capturing := core.NotEnqueued(&core.StreamMisuseError{Op: "DeviceOps", Reason: "capturing", Capturing: true})
	b.mem.failNext("Delay", errDevice, capturing, capturing, errDevice, capturing)
	for b.mem.calls["Delay"] < 20 {
		b.launch("work", 1, func() {}, block)
	}
	b.free(block)
	b.empty()
	b.want()
	g := b.guard.GuardStats()
	if g.Captured != 3 || g.Delays != 15 {
		t.Errorf("%d calls, captured %d, delays %d", b.mem.calls["Delay"], g.Captured, g.Delays)
	}
}
