package fenceproof

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/dev/proof"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// everyKind is all that a caller does; the reaper's looks and the driver's
// failures are for withReaps.
var everyKind = []program.Kind{program.Launch, program.Free, program.Sync, program.Abort, program.Record}

func bound(ops, goroutines int) proof.Bound {
	return proof.Bound{Bounds: program.Bounds{Streams: 3, Blocks: 3, Ops: ops, Kinds: everyKind}, From: 1, Goroutines: goroutines}
}

// withReaps has the reaper look at the streams between the operations, and
// launches whose event the driver refuses to record.
func withReaps(ops, goroutines int) proof.Bound {
	b := bound(ops, goroutines)
	b.Kinds = []program.Kind{program.Launch, program.Free, program.Reap, program.Faulty, program.FaultyRecord}
	return b
}

// withoutAborts leaves out launches that are aborted: each launch that may be is
// another program, which makes seven times as many of 6 operations.
func withoutAborts(ops, goroutines int) proof.Bound {
	b := bound(ops, goroutines)
	b.Kinds = []program.Kind{program.Launch, program.Free, program.Sync, program.Record}
	b.From = ops // the shorter are among those of bound
	return b
}

// bounds are what is run: some seconds by default, less under the race
// detector. On two busy cores FENCEPOST_FENCES=full takes some twenty minutes, and
// FENCEPOST_FENCES=everything an hour.
func bounds() []proof.Bound {
	switch {
	case os.Getenv("FENCEPOST_FENCES") == "everything":
		return []proof.Bound{bound(6, 2), bound(5, 3), withReaps(5, 2)}
	case os.Getenv("FENCEPOST_FENCES") == "full":
		return []proof.Bound{withoutAborts(6, 2), bound(5, 2), bound(5, 3), withReaps(5, 2)}
	case testing.Short():
		return []proof.Bound{bound(3, 2), bound(3, 3), withReaps(3, 2)}
	case raceDetector:
		return []proof.Bound{bound(4, 2), withReaps(3, 2)}
	default:
		return []proof.Bound{bound(5, 2), bound(4, 3), withReaps(4, 2)}
	}
}

// TestFencesExhaustive runs all programs up to a bound under all schedules of
// their host goroutines, and judges in each case all orders of execution that
// the queued waits leave.
func TestFencesExhaustive(t *testing.T) {
	var total proof.Total
	var texts []string
	for _, b := range bounds() {
		start := time.Now()
		got, err := proof.Exhaust(b, runtime.GOMAXPROCS(0))
		if err != nil {
			t.Fatalf("bound %v:\n%v", b, err)
		}
		amount{got.Programs, got.Schedules}.require(t, b, floorOf(t, b))
		t.Logf("bound %v: %v, %d waits, %d orders and waits excused, in %v", b, got, got.Waits, got.Excused, time.Since(start).Round(time.Millisecond))
		total.Add(got)
		texts = append(texts, b.String())
	}
	if total.Waits == 0 || total.Missed+total.Redundant+total.Extra > 0 {
		t.Fatalf("%v, %d waits", total, total.Waits)
	}
	fmt.Printf("fences: %v bound=%s complete=%v\n", total, strings.Join(texts, "+"), !t.Failed())
}

// TestGivenUpStreamsKeepTheirOrder runs all programs in which an adopted stream
// is given up: what was allocated there is freed elsewhere, behind its end.
func TestGivenUpStreamsKeepTheirOrder(t *testing.T) {
	b := program.Bounds{Streams: 3, Blocks: 2, Ops: 4, Kinds: []program.Kind{program.Launch, program.Free, program.GiveUp, program.Reap}}
	if os.Getenv("FENCEPOST_FENCES") == "full" {
		b.Ops = 5
	}
	var got amount
	b.Each(1, func(p program.Program) bool {
		if !p.GivesUp() {
			return true
		}
		got.programs++
		proof.EachSchedule(p, 2, func(s proof.Schedule) bool {
			got.schedules++
			if _, err := proof.CheckOnce(proof.Config{Streams: b.Streams}, p, s); err != nil {
				t.Error(err)
			}
			return !t.Failed()
		})
		return !t.Failed()
	})
	t.Logf("%d programs under %d schedules", got.programs, got.schedules)
	got.require(t, "given up", givenUpFloors[b.Ops])
}

// TestDeviceOrderNeedsNoHost runs programs in which nothing that the host has
// seen done counts for order: not for the runtime, nor for the oracle.
func TestDeviceOrderNeedsNoHost(t *testing.T) {
	b := bound(4, 2)
	b.Kinds = append(slices.Clone(everyKind), program.Reap)
	if raceDetector {
		b.Ops = 3
	}
	r, err := proof.NewRunner(proof.Config{Streams: b.Streams, DeviceOrder: true})
	must.Do(t, err)
	var total proof.Total
	b.Each(b.From, func(p program.Program) bool {
		expect.Success(t, r.CheckAll(p, b.Goroutines, &total))
		return !t.Failed()
	})
	t.Logf("%v, %d waits", total, total.Waits)
	amount{total.Programs, total.Schedules}.require(t, b, deviceFloors[b.Ops])
	if err := r.Close(); err != nil && !t.Failed() {
		t.Error(err)
	}
}
