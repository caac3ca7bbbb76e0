package replay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/traceio/replay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// trace reads rows of "action,pointer,bytes,stream", a millisecond apart.
func trace(t *testing.T, rows ...string) *alloctrace.Trace {
	t.Helper()
	text := "Thread,Time,Action,Pointer,Size,Stream\n"
	for i, row := range rows {
		text += fmt.Sprintf("1,00:00:00:%06d,%s\n", (i+1)*1000, row)
	}
	return must.Get(alloctrace.Read("test.csv", strings.NewReader(text)))(t)
}

func config(s *teststack.Stack) replay.Config {
	return replay.Config{Runtime: s.Runtime, Streams: s.Streams, Pool: s.Async}
}

func play(t *testing.T, s *teststack.Stack, tr *alloctrace.Trace) *replay.Report {
	t.Helper()
	report := must.Get(replay.Play(t.Context(), tr, config(s)))(t)
	if sum := report.Allocations + report.Frees + report.RecordedFailures + report.Empty; sum != report.Events {
		t.Errorf("%d events, %d accounted for", report.Events, sum)
	}
	return report
}

func TestReplayKeepsTheOrderAndTheStreamsOfTheFile(t *testing.T) {
	ring := logging.NewRing(64)
	s := teststack.Open(t, teststack.Config{Layers: []core.Layer{core.With(logging.New, logging.Config{Sinks: []logging.Sink{ring}})}})
	play(t, s, trace(t,
		"allocate,0x100,10,7", "allocate,0x200,20,9", "free,0x100,10,7", "allocate,0x100,30,7", "allocate,0x300,40,0", "free,0x200,20,9", "free,0x100,30,7", "free,0x300,40,0"))

	var sizes []uint64
	streams := map[uint64]core.StreamID{}
	for _, r := range ring.Snapshot() {
		if r.Event.Op != oplog.OpAllocate && r.Event.Op != oplog.OpDeallocate {
			continue
		}
		sizes = append(sizes, r.Event.Requested)
		streams[r.Event.Requested] = r.Event.Block.AllocStream
	}
	if want := []uint64{10, 20, 10, 30, 40, 20, 30, 40}; fmt.Sprint(sizes) != fmt.Sprint(want) {
		t.Errorf("played %v, want %v", sizes, want)
	}
	if streams[10] != streams[30] || streams[10] == streams[20] || streams[20] == streams[40] || streams[10] == streams[40] {
		t.Errorf("recorded streams 7, 7, 9 and 0 became %v, %v, %v and %v", streams[10], streams[30], streams[20], streams[40])
	}
}

func TestReplayCountsWhatTheRowsSay(t *testing.T) {
	s := teststack.Open(t, teststack.Config{})
	r := play(t, s, trace(t,
		"free,0x900,1,0", "allocate,0x100,100,0", "allocate,0x200,50,0", "free,0x100,100,0", "free,0x100,100,0",
		"allocate failure,(nil),9,0", "allocate,(nil),0,0", "free,(nil),0,0", "allocate,0x100,30,0"))
	want := replay.Report{Events: 9, Allocations: 3, Frees: 3, RecordedFailures: 1, Empty: 2, UnknownFrees: 2, PeakLive: 150, EndLive: 80, LeftLiveBlocks: 2}
	if r.EarlierBlocks != 1 || r.EarlierBytes != 1 || !r.LowerBounds {
		t.Errorf("one of the unknown frees is of a block from before: %+v", r)
	}
	got := replay.Report{Events: r.Events, Allocations: r.Allocations, Frees: r.Frees, RecordedFailures: r.RecordedFailures, Empty: r.Empty,
		UnknownFrees: r.UnknownFrees, PeakLive: r.PeakLive, EndLive: r.EndLive, LeftLiveBlocks: r.LeftLiveBlocks}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if len(r.LeftLive) != 2 || r.LeftLive[0] != (replay.Left{Line: 4, Bytes: 50}) || r.LeftLive[1] != (replay.Left{Line: 10, Bytes: 30}) {
		t.Errorf("left live: %+v", r.LeftLive)
	}
	if !r.Clean() || r.Drift != 0 || r.PeakReserved == 0 {
		t.Errorf("not clean: %+v", r)
	}
	if l := r.Latency["allocate"]; l.Count != 3 || l.P50 <= 0 || l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.Max {
		t.Errorf("latencies: %+v", l)
	}
}

// A recorded failure is explained by what the rows say of that moment.
func TestARecordedFailureIsExplained(t *testing.T) {
	s := teststack.Open(t, teststack.Config{Layers: []core.Layer{core.With(budget.New, budget.Config{Limit: 1000})}})
	r := play(t, s, trace(t,
		"allocate,0x1000,1280,7", "allocate,0x1500,768,7", "allocate,0x1800,256,7", // the first is refused here
		"free,0x1500,768,7", "allocate failure,(nil),1024,9", "free,0x1000,1280,7", "allocate failure,(nil),2048,9"))
	want := []replay.Failure{{Line: 6, Bytes: 1024, Stream: 9, Live: 1536, LiveBlocks: 2, LargestFree: 768}, {Line: 8, Bytes: 2048, Stream: 9, Live: 256, LiveBlocks: 1, LargestFree: 2048}}
	for i := range r.Failures {
		if text := r.Failures[i].Text; !strings.HasPrefix(text,
			fmt.Sprintf("line %d: %d bytes", r.Failures[i].Line, r.Failures[i].Bytes)) {
			t.Errorf("it says %s", text)
		}
		r.Failures[i].Text = ""
	}
	if fmt.Sprint(r.Failures) != fmt.Sprint(want) || r.RecordedFailures != 2 || r.LowerBounds {
		t.Errorf("%+v", r)
	}
}

// A log that lost records tells so by the numbers of the others too.
func TestALogThatLostRecordsHasLowerBounds(t *testing.T) {
	for missing, want := range map[uint64]bool{0: false, 2: true} {
		tr := trace(t, "allocate,0x100,10,7", "free,0x100,10,7")
		tr.Passed.Missing = missing
		if r := play(t, teststack.Open(t, teststack.Config{}), tr); r.LowerBounds != want || r.Missing != missing {
			t.Errorf("%d missing: %+v", missing, r)
		}
	}
}

// What the frees take behind the last row is part of the replay's time.
func TestADrainIsShownAndCounted(t *testing.T) {
	s := teststack.Open(t, teststack.Config{})
	cfg := config(s)
	var live uint64
	shown := 0
	cfg.Draining = func() func() {
		live = s.Runtime.Stats().Live.Blocks
		return func() { shown++; live -= s.Runtime.Stats().Live.Blocks }
	}
	r := must.Get(replay.Play(t.Context(), trace(t, "allocate,0x100,10,7", "allocate,0x200,10,7", "free,0x100,10,7"), cfg))(t)
	if shown != 1 || live != 1 || r.DrainSeconds <= 0 || r.Seconds < r.DrainSeconds {
		t.Errorf("shown %d times, %d blocks freed meanwhile, %+v", shown, live, r)
	}
}

func TestAPerThreadStreamHasALeaseAThread(t *testing.T) {
	ring := logging.NewRing(64)
	s := teststack.Open(t, teststack.Config{Layers: []core.Layer{core.With(logging.New, logging.Config{Sinks: []logging.Sink{ring}})}})
	text := "Thread,Time,Action,Pointer,Size,Stream\n"
	for i, thread := range []int{1, 2, 1} {
		text += fmt.Sprintf("%d,00:00:00:000001,allocate,0x%d00,%d,0x2\n", thread, i+1, i+1)
	}
	play(t, s, must.Get(alloctrace.Read("f", strings.NewReader(text)))(t))
	on := map[uint64]core.StreamID{}
	for _, r := range ring.Snapshot() {
		if r.Event.Op == oplog.OpAllocate {
			on[r.Event.Requested] = r.Event.Stream
		}
	}
	if on[1] == on[2] || on[1] != on[3] {
		t.Errorf("threads 1, 2 and 1 were on %v", on)
	}
}

// The stack's end checks that the earlier block was given back too.
func TestAPointerAllocatedTwiceLosesNoBlock(t *testing.T) {
	s := teststack.Open(t, teststack.Config{})
	r := play(t, s, trace(t, "allocate,0x100,64,0", "allocate,0x100,128,0", "free,0x100,128,0"))
	if r.Repeated != 1 || r.PeakLive != 192 || r.EndLive != 64 || r.LeftLiveBlocks != 1 || r.LeftLive[0].Line != 2 {
		t.Errorf("%+v", r)
	}
}

func TestARefusedAllocationIsCountedAndExplained(t *testing.T) {
	s := teststack.Open(t, teststack.Config{Layers: []core.Layer{core.With(budget.New, budget.Config{Limit: 100})}})
	r := play(t, s, trace(t, "allocate,0x100,80,0", "allocate,0x200,50,0", "allocate,0x300,60,0", "free,0x200,50,0", "free,0x100,80,0", "free,0x300,60,0"))
	if r.Refusals != 2 || r.RefusedFrees != 2 || r.UnknownFrees != 0 || r.PeakLive != 80 || r.Clean() {
		t.Errorf("%+v", r)
	}
	if !strings.HasPrefix(r.FirstRefusal, "line 3: out of budget: requested 50 B ") {
		t.Errorf("the first refusal: %s", r.FirstRefusal)
	}
}

func TestAFullDeviceIsARefusalToo(t *testing.T) {
	s := teststack.Open(t, teststack.Config{})
	r := play(t, s, trace(t, "allocate,0x100,1099511627776,0", "free,0x100,1099511627776,0"))
	if r.Refusals != 1 || r.RefusedFrees != 1 || !strings.Contains(r.FirstRefusal, "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("%+v", r)
	}
}

func TestAReplayGivesEverythingBackAfterAnError(t *testing.T) {
	var faults *drivertest.Faults
	s := teststack.Open(t, teststack.Config{Wrap: func(d driver.Driver) driver.Driver {
		faults = drivertest.NewFaults(d)
		return faults
	}})
	const unknownError = 999
	faults.FailMethod(drivertest.MemAllocAsync, 1, unknownError)
	tr := trace(t, "allocate,0x100,64,3", "allocate,0x200,64,3")
	if _, err := replay.Play(t.Context(), tr, config(s)); !errors.Is(err, core.ErrDriver) || !strings.Contains(err.Error(), "test.csv:2: allocate: ") {
		t.Errorf("got %v, want the driver's error with file, line and action", err)
	}
	if st := s.Streams.Stats(); st.Leased != 0 {
		t.Errorf("%d leases are out", st.Leased)
	}
}

// Fencepost's own logs name leases, which are never used again: a service's has
// more of them than any device has streams.
func TestMoreStreamsThanLeasesTakeTurns(t *testing.T) {
	ring := logging.NewRing(64)
	s := teststack.Open(t, teststack.Config{Streams: 2, Layers: []core.Layer{core.With(logging.New, logging.Config{Sinks: []logging.Sink{ring}})}})
	report := play(t, s, trace(t,
		"allocate,0x100,10,1", "allocate,0x200,20,2", "allocate,0x300,30,1", "allocate,0x400,40,3", "allocate,0x500,50,1", "allocate,0x600,60,2",
		"free,0x100,10,1", "free,0x200,20,2", "free,0x300,30,1", "free,0x400,40,3", "free,0x500,50,1", "free,0x600,60,2"))
	if report.Allocations != 6 || report.Frees != 6 || report.UnknownFrees != 0 || report.LeftLiveBlocks != 0 || report.Drift != 0 {
		t.Errorf("%+v", report)
	}
	on := map[uint64]core.StreamID{}
	for _, r := range ring.Snapshot() {
		if r.Event.Op == oplog.OpAllocate {
			on[r.Event.Requested] = r.Event.Stream
		}
	}
	if on[10] != on[30] || on[10] != on[50] || on[20] == on[60] || on[20] == on[40] || on[10] == on[20] {
		t.Errorf("not the one that was not used for longest gave way: %v", on)
	}
	if st := s.Streams.Stats(); st.Leased != 0 {
		t.Errorf("%d leases are out", st.Leased)
	}
}

func TestNoStreamAtAllIsAnError(t *testing.T) {
	s := teststack.Open(t, teststack.Config{Streams: 1})
	other, err := s.Streams.Acquire(t.Context(), "other")
	must.Do(t, err)
	_, err = replay.Play(t.Context(), trace(t, "allocate,0x100,64,1"), config(s))
	if !errors.Is(err, cuda.ErrNoStream) || !strings.Contains(err.Error(), "recorded stream 1") {
		t.Errorf("got %v", err)
	}
	expect.Success(t, other.Release())
}

func TestSpeedKeepsTheRecordedTimes(t *testing.T) {
	s := teststack.Open(t, teststack.Config{})
	rows := make([]string, 0, 41)
	for range 41 { // 40 ms from the first to the last
		rows = append(rows, "free,0x900,1,0")
	}
	tr := trace(t, rows...)
	cfg := config(s)
	for speed, least := range map[float64]time.Duration{1: 40 * time.Millisecond, 2: 20 * time.Millisecond} {
		cfg.Speed = speed
		began := time.Now()
		must.Get(replay.Play(t.Context(), tr, cfg))(t)
		if took := time.Since(began); took < least {
			t.Errorf("speed %v: took %v, want at least %v", speed, took, least)
		}
	}
}

func TestAReplayEndsWithItsContext(t *testing.T) {
	s := teststack.Open(t, teststack.Config{})
	tr := trace(t, "allocate,0x100,64,0", "free,0x100,64,0")
	tr.Rows[1].Time += time.Hour
	cfg := config(s)
	cfg.Speed = 1
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for s.Runtime.Stats().Live.Blocks == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	r, err := replay.Play(ctx, tr, cfg)
	if !errors.Is(err, context.Canceled) || r.Events != 1 || r.EndLive != 64 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAReportListsTheFirstHundredLeftLive(t *testing.T) {
	s := teststack.Open(t, teststack.Config{})
	rows := make([]string, 0, 150)
	for i := range 150 {
		rows = append(rows, fmt.Sprintf("allocate,%#x,%d,0", (i+1)*0x1000, i+1))
	}
	r := play(t, s, trace(t, rows...))
	if r.LeftLiveBlocks != 150 || len(r.LeftLive) != 100 || r.LeftLive[99].Bytes != 100 {
		t.Errorf("%d blocks, %d listed", r.LeftLiveBlocks, len(r.LeftLive))
	}
}
