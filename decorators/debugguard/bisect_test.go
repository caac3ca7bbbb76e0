package debugguard_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func bisecting(c *debugguard.Config) { c.Advanced.Hunt.Bisect = true }

func launchesOf(uses []core.UseRecord) (all []string) {
	for _, u := range uses {
		all = append(all, u.Launch)
	}
	return all
}

// Many launches use a block that one of them runs over, long before its free.
func TestBisectingNamesTheLaunchThatRanOver(t *testing.T) {
	b := newBench(t, debugguard.Hunt, bisecting)
	block, other := b.alloc(100), b.alloc(100)
	for i := range 40 {
		name := "good"
		if i == 17 {
			name = "bad"
		}
		b.launch(name, 1, func() {
			if name == "bad" {
				b.mem.poke(block.ID.Ptr+100, 4)
			}
		}, block, other)
	}
	b.free(block)
	b.free(other)
	b.empty()
	f := b.want(names.FindingOutOfBoundsWrite)[0]
	if !slices.Equal(launchesOf(f.Suspects), []string{"bad"}) || f.Victim.ID != block.ID || f.Offset != 100 || f.BadBytes != 4 {
		t.Errorf("suspects %v, victim %v at %d", launchesOf(f.Suspects), f.Victim.ID, f.Offset)
	}
}

// A launch may name a block twice, and its blocks in any order: each is compared once,
// and freed once it has ended.
func TestBisectingComparesABlockThatIsNamedTwiceOnce(t *testing.T) {
	b := newBench(t, debugguard.Hunt, bisecting)
	first, second := b.alloc(100), b.alloc(100)
	ticket := b.prepare("bad", 1, second, first, second, first)
	b.free(first)
	b.mem.poke(second.ID.Ptr+100, 4)
	b.finish(ticket)
	b.drain()
	if g := b.guard.GuardStats(); g.BlockedFrees.Blocks != 0 {
		t.Errorf("frees are held back: %+v", g)
	}
	b.free(second)
	b.empty()
	f := b.want(names.FindingOutOfBoundsWrite)[0]
	if f.Victim.ID != second.ID || f.BadBytes != 4 || len(f.Uses) != 1 {
		t.Errorf("victim %v, %d bytes, uses %v", f.Victim.ID, f.BadBytes, launchesOf(f.Uses))
	}
}

// The culprit declares nothing, not even a block.
func TestBisectingNamesTheLaunchThatWroteFreedMemory(t *testing.T) {
	b := newBench(t, debugguard.Hunt, bisecting)
	freed, used := b.alloc(4096), b.alloc(64)
	b.free(freed)
	for i := range 40 {
		switch i {
		case 23:
			b.launch("bad", 1, func() { b.mem.poke(freed.ID.Ptr+8, 8) })
		default:
			b.launch("good", 1, func() {}, used)
		}
	}
	b.free(used)
	b.empty()
	f := b.want(names.FindingUseAfterFreeWrite)[0]
	if !slices.Equal(launchesOf(f.Suspects), []string{"bad"}) || f.Victim.ID != freed.ID || f.BadBytes != 8 {
		t.Errorf("suspects %v, victim %v, %d bytes", launchesOf(f.Suspects), f.Victim.ID, f.BadBytes)
	}
}

// The device is behind: verdicts come later, of launches long past.
func TestBisectingDoesNotWaitForTheDevice(t *testing.T) {
	b := newBench(t, debugguard.Hunt, bisecting)
	block, freed := b.alloc(64), b.alloc(64)
	b.mem.hold()
	b.free(freed)
	b.launch("before", 1, func() {}, block)
	b.launch("bad", 1, func() { b.mem.poke(block.ID.Ptr-1, 1); b.mem.poke(freed.ID.Ptr, 1) }, block)
	b.launch("after", 1, func() {}, block)
	b.want()
	b.mem.release()
	b.drain()
	for _, f := range b.want(names.FindingUnderflow, names.FindingUseAfterFreeWrite) {
		if !slices.Equal(launchesOf(f.Suspects), []string{"bad"}) {
			t.Errorf("%v: suspects %v", f.Kind, launchesOf(f.Suspects))
		}
	}
	b.free(block)
	b.empty()
	b.want()
}

// A device that falls behind is waited for, so that no comparison is left out and
// the window of a finding stays one launch wide.
func TestBisectingKeepsUpWithASlowDevice(t *testing.T) {
	b := newBench(t, debugguard.Hunt, bisecting)
	block := b.alloc(100)
	b.mem.hold()
	var ended atomic.Bool
	var device sync.WaitGroup
	device.Go(func() {
		for !ended.Load() {
			time.Sleep(time.Millisecond)
			b.mem.pass()
		}
	})
	most := uint64(0)
	const launches, culprit = 1000, 700
	for i := range launches {
		name := fmt.Sprint("launch ", i)
		b.launch(name, 1, func() {
			if i == culprit {
				b.mem.poke(block.ID.Ptr+100, 1)
			}
		}, block)
		most = max(most, b.guard.GuardStats().Checks)
	}
	ended.Store(true)
	device.Wait()
	b.mem.release()
	if most > 70 {
		t.Errorf("%d verdicts were awaited at a time", most)
	}
	b.drain()
	f := b.want(names.FindingOutOfBoundsWrite)[0]
	if got := launchesOf(f.Suspects); !slices.Equal(got, []string{fmt.Sprint("launch ", culprit)}) {
		t.Errorf("suspects %v", got)
	}
	if n := b.guard.GuardStats().Unchecked; n != 0 {
		t.Errorf("%d comparisons were left out", n)
	}
	b.free(block)
	b.empty()
}

// The device may be waiting for what the program does next: a launch waits for
// it once, and those behind it no more.
func TestBisectingIsNotHeldUpByADeviceThatIs(t *testing.T) {
	b := newBench(t, debugguard.Hunt, bisecting)
	block := b.alloc(100)
	b.mem.hold()
	began := time.Now()
	for range 200 {
		b.launch("launch", 1, func() {}, block)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("200 launches took %v", took)
	}
	b.mem.release()
	b.free(block)
	b.empty()
	b.want()
}

func TestLaunchesBesideTheCulpritAreSuspectsAfterIt(t *testing.T) {
	b := newBench(t, debugguard.Hunt, bisecting)
	one, two := b.allocOn(1, 64), b.allocOn(2, 64)
	b.launch("earlier", 2, func() {}, two)
	beside := b.prepare("beside", 2, two)
	bad := b.prepare("bad", 1, one)
	b.finish(beside)
	b.mem.poke(one.ID.Ptr+64, 1)
	b.finish(bad)
	b.free(one)
	b.free(two)
	b.empty()
	f := b.want(names.FindingOutOfBoundsWrite)[0]
	if got := launchesOf(f.Suspects); len(got) > 3 || got[0] != "bad" || !slices.Contains(got, "beside") {
		t.Errorf("suspects %v", got)
	}
}

// A wait of the guard's would order streams that the program does not.
func TestBisectingLeavesOtherStreamsQuarantineToThem(t *testing.T) {
	b := newBench(t, debugguard.Hunt, bisecting)
	freed, mine, theirs := b.allocOn(2, 64), b.allocOn(1, 64), b.allocOn(2, 64)
	b.free(freed)
	b.fake.Calls()
	b.launch("mine", 1, func() {}, mine)
	if calls := b.fake.Calls(); !slices.Contains(calls, "PrepareUse gpumem.guard.bisect 1") || slices.Contains(calls, "PrepareUse gpumem.guard.bisect 2") {
		t.Errorf("after a launch on another stream: %v", calls)
	}
	before := b.mem.calls["Verify"]
	b.launch("theirs", 2, func() {}, theirs)
	if n := b.mem.calls["Verify"] - before; n != 2 { // its own block, and what was freed
		t.Errorf("%d comparisons on the stream itself", n)
	}
	b.free(mine)
	b.free(theirs)
	b.empty()
	b.want()
}

func TestQuarantineBeyondTheBoundIsComparedInTurn(t *testing.T) {
	const blocks = 3000
	b := newBench(t, debugguard.Hunt, bisecting, func(c *debugguard.Config) { c.Advanced.Hunt.QuarantineBytes = 1 << 30 })
	used := b.alloc(64)
	var freed []core.Block
	for range blocks {
		freed = append(freed, b.alloc(64))
	}
	for _, f := range freed {
		b.free(f)
	}
	b.mem.poke(freed[2500].ID.Ptr, 1)
	for i := range 3 {
		b.launch("work", 1, func() {}, used)
		must.Do(t, b.guard.ReapPending(ctx))
		if found := len(b.sink.taken()); found != i/2 {
			t.Errorf("after %d launches %d findings", i+1, found)
		}
	}
	b.free(used)
	b.empty()
	b.want()
}

func TestAFailedComparisonAfterALaunchIsMadeUpFor(t *testing.T) {
	for _, op := range []string{"PrepareUse", "FinishUse", "Verify"} {
		b := newBench(t, debugguard.Hunt, bisecting)
		block := b.alloc(64)
		tickets := b.prepare("bad", 1, block)
		b.mem.poke(block.ID.Ptr+64, 1)
		switch op {
		case "Verify":
			b.mem.failNext(op, errDevice)
		case "FinishUse":
			b.fake.FailNext(op, nil, errDevice)
		default:
			b.fake.FailNext(op, errDevice)
		}
		b.finish(tickets)
		b.launch("good", 1, func() {}, block)
		b.free(block)
		b.empty()
		f := b.want(names.FindingOutOfBoundsWrite)[0]
		if got := launchesOf(f.Suspects); !slices.Contains(got, "bad") || b.guard.GuardStats().Unchecked != 1 {
			t.Errorf("%s failed: suspects %v, %d unchecked", op, got, b.guard.GuardStats().Unchecked)
		}
	}
}
