package fenceproof

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// TestNoWaitCanBeTakenAway lets the device forget each queued wait of each
// program in turn. Each time an order that must be is gone, and there is an
// order of execution in which a wrong value is read or a block touched outside
// its life: that is seen by running, and not by the rules that the first
// follows from.
//
// Two kinds of programs have waits that only the rules miss, because what came
// after the wait was queued made it needless: the host synchronised before the
// work was enqueued (no such programs here), or a launch's work was enqueued
// some steps after it was prepared or before it was finished, which the runtime
// cannot know.
func TestNoWaitCanBeTakenAway(t *testing.T) {
	b := program.Bounds{Streams: 3, Blocks: 3, Ops: 4, Kinds: []program.Kind{program.Launch, program.Free}}
	fewest := 10_000
	if testing.Short() {
		b.Ops, fewest = 3, 100
	}
	r, err := proof.NewRunner(proof.Config{Streams: b.Streams})
	must.Do(t, err)
	dropped, silent := 0, 0
	b.Each(1, func(p program.Program) bool {
		proof.Explorer{Goroutines: 2}.Each(p, func(s proof.Schedule) bool {
			v, err := r.Check(p, s)
			must.Do(t, err)
			for k := 1; k <= v.Waits; k++ {
				r.Device().Drop = k
				dropped++
				without, err := r.Run(p, s)
				if without.Wrong == 0 && apart(s) {
					silent++
					without.Wrong++
				}
				if err != nil || without.Missed == 0 || without.Wrong == 0 {
					t.Errorf("%v\n%v\nwithout wait %d: %+v, %v\n%v", p, s, k, without, err, r.History())
				}
			}
			r.Device().Drop = 0
			return !t.Failed()
		})
		return !t.Failed()
	})
	t.Logf("%d waits were dropped, one at a time; %d of them left the values right, as other steps came between those of a launch", dropped, silent)
	if dropped < fewest || silent > dropped/10 {
		t.Error("that is not what it was")
	}
	expect.Success(t, r.Close())
}

// apart reports whether a step of another operation came between those of a
// launch.
func apart(s proof.Schedule) bool {
	for i, step := range s {
		if step.Phase == proof.Enqueue && (s[i-1].Op != step.Op || s[i+1].Op != step.Op) {
			return true
		}
	}
	return false
}
