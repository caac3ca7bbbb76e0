package replay_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/traceio/replay"
)

// An allocation of no bytes may have returned a pointer, even one that several
// others got. It is nothing to a replay, and so is its free; a block that has
// that pointer meanwhile keeps it.
func TestARowOfNoBytesConcernsNoMemory(t *testing.T) {
	s := teststack.Open(t, teststack.Config{})
	r := play(t, s, trace(t,
		"allocate,0x100,0,7", "allocate,0x200,20,7", "free,0x100,0,7", // both empty
		"allocate,0x300,0,7", "allocate,0x300,0,7", "allocate,0x300,30,7", "free,0x300,0,7", "free,0x300,0,7", "free,0x300,30,7", // one is a block
		"allocate,0x200,0,7", "free,0x200,20,7", // the first still is
		"free,0x100,0,7")) // of nothing once more
	if r.Empty != 8 || r.Allocations != 2 || r.Frees != 2 || r.UnknownFrees != 0 || r.Repeated != 0 || r.LeftLiveBlocks != 0 || r.PeakLive != 50 {
		t.Errorf("%+v", r)
	}
	log := &alloctrace.Trace{Name: "log", Rows: []alloctrace.Row{
		{Line: 1, Action: alloctrace.Allocate, Generation: 5}, {Line: 2, Action: alloctrace.Free, Generation: 5}, {Line: 3, Action: alloctrace.Free, Generation: 6}}}
	if r := play(t, s, log); r.Empty != 2 || r.UnknownFrees != 1 {
		t.Errorf("of a log: %+v", r)
	}
}

func TestASpeedThatIsNoneIsRefused(t *testing.T) {
	for _, speed := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e-300, math.SmallestNonzeroFloat64, replay.MinSpeed / 2, 2 * replay.MaxSpeed, math.MaxFloat64} {
		if err := replay.CheckSpeed(speed); err == nil {
			t.Errorf("%v is taken", speed)
		}
		s := teststack.Open(t, teststack.Config{})
		c := config(s)
		c.Speed = speed
		if report, err := replay.Play(t.Context(), trace(t, "allocate,0x100,10,7"), c); err == nil || report.Events != 0 {
			t.Errorf("%v is played: %+v, %v", speed, report, err)
		}
	}
	for _, speed := range []float64{0, replay.MinSpeed, 1, replay.MaxSpeed} {
		expect.Success(t, replay.CheckSpeed(speed))
	}
}

// The longest time that a trace can have, at the slowest speed, is waited for
// and not taken for one that has passed.
func TestATimeBeyondCountingIsNotOver(t *testing.T) {
	s := teststack.Open(t, teststack.Config{})
	tr := trace(t, "allocate,0x100,10,7", "free,0x100,10,7")
	tr.Rows[1].Time = math.MaxInt64
	c := config(s)
	c.Speed = replay.MinSpeed
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	report, err := replay.Play(ctx, tr, c)
	if !errors.Is(err, context.DeadlineExceeded) || report.Frees != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestAReportSaysWhatWasTooLong(t *testing.T) {
	s := teststack.Open(t, teststack.Config{})
	tr := trace(t, "allocate,0x100,10,7", "free,0x100,10,7")
	tr.Passed = alloctrace.Passed{TooLong: 3, FirstTooLong: 9}
	if r := play(t, s, tr); fmt.Sprint(r.TooLong, r.FirstTooLong) != "3 9" || r.Events != 2 {
		t.Errorf("%+v", r)
	}
}
