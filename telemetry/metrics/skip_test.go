package metrics

import (
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
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
