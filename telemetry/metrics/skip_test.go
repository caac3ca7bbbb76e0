package metrics

import (
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// One call in oneIn is timed, whatever the durations, and those that are skipped count as it does.
func TestSkippedCallsCountAsTheLastThatWasTimed(t *testing.T) {
	var c Calls
	var want time.Duration
	last, timed := time.Duration(0), 0
	const calls = 100 * oneIn
	for range calls {
		if !c.Skip(oplog.OpFinish, 3) {
			last = time.Duration(1000 << (timed % 3))
			timed++
			c.NoteSample(oplog.OpFinish, 3, last, core.SpanRef{}, nil)
		}
		want += last
	}
	o := c.Snapshot(time.Now(), 0)
	if got := o.Calls(oplog.OpFinish); got != calls || timed != calls/oneIn {
		t.Errorf("%d calls, of which %d were timed", got, timed)
	}
	if got := time.Duration(o.latencyOf(oplog.OpFinish).nanoseconds); got != want {
		t.Errorf("they took %v, want %v", got, want)
	}
}

// The same of what a lane serves at once, allocations and frees apart.
func TestALanesCallsThatAreNotTimedCountAsTheLastThatWas(t *testing.T) {
	var c Calls
	lane := new(path.Lane)
	l := c.OfLane(lane)
	lane.Lock()
	for range 3 {
		l.NoteAllocate(true, 5000)
		l.NoteAllocate(false, 0)
		l.NoteAllocate(false, 0)
		l.NoteDeallocate(true, 70)
		l.NoteDeallocate(false, 0)
	}
	lane.Unlock()
	o := c.Snapshot(time.Now(), 0)
	for op, want := range map[oplog.Op][2]uint64{oplog.OpAllocate: {9, 45000}, oplog.OpDeallocate: {6, 420}} {
		got := o.latencyOf(op)
		if got.calls != want[0] || got.nanoseconds != want[1] {
			t.Errorf("%v: %d calls took %d ns, want %d and %d", op, got.calls, got.nanoseconds, want[0], want[1])
		}
	}
}

func TestHammerSkippedCallsAreCountedOnce(t *testing.T) {
	var c Calls
	var all sync.WaitGroup
	const calls = 5000
	for range 4 {
		all.Go(func() {
			for range calls {
				if !c.Skip(oplog.OpPrepare, 0) {
					c.NoteSample(oplog.OpPrepare, 0, 5, core.SpanRef{}, nil)
				}
			}
		})
	}
	all.Wait()
	o := c.Snapshot(time.Now(), 0)
	if got := o.Calls(oplog.OpPrepare); got != 4*calls {
		t.Errorf("%d calls, want %d", got, 4*calls)
	}
	if l := o.latencyOf(oplog.OpPrepare); l.nanoseconds != 5*l.calls {
		t.Errorf("they took %d ns", l.nanoseconds)
	}
}
