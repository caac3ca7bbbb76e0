package debugguard

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestSettingsAreReadAsTheyPrint(t *testing.T) {
	for s, want := range map[string]Setting{
		"off": {}, "ledger": {Mode: Ledger}, "sample": {Mode: Sample}, "sample:4096": {Mode: Sample, SampleBytes: 4096},
		"hunt": {Mode: Hunt}, "hunt:bisect": {Mode: Hunt, Bisect: true}, "hunt:bisect+unmap": {Mode: Hunt, Bisect: true, Unmap: true},
		"hunt:bisect+delay+unmap": {Mode: Hunt, Bisect: true, Delay: true, Unmap: true},
	} {
		got, err := ParseMode(s)
		if err != nil || got != want || got.String() != s {
			t.Errorf("%s: %+v, prints as %s, %v", s, got, got, err)
		}
	}
	if s, err := ParseMode("hunt:delay+bisect"); err != nil || s.String() != "hunt:bisect+delay" {
		t.Errorf("options in another order: %v, %v", s, err)
	}
	for _, s := range []string{"", "on", "hunt:1", "hunt:", "hunt:bisect,delay", "hunt:bisect+", "ledger:bisect", "off:", "sample:", "sample:0", "sample:-1", "sample:x", "sample:bisect", "Sample"} {
		if got, err := ParseMode(s); !errors.Is(err, core.ErrInvalidRequest) || got != (Setting{}) {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
	if s := Mode(9).String(); s != "mode(9)" {
		t.Error(s)
	}
}

func TestAMeanOfOneChoosesEveryBlockAndOfNoneNone(t *testing.T) {
	for range 1000 {
		if !rateOf(1).chooses(1) || rateOf(0).chooses(math.MaxUint64) {
			t.Fatal("it is a matter of luck")
		}
	}
}

func TestQuarantineSuitsTheDevice(t *testing.T) {
	for memory, want := range map[uint64][2]uint64{
		0: {64 << 20, 1 << 30}, 1: {1, 1}, 1 << 30: {1 << 30 / 250, 64 << 20}, 16 << 30: {64 << 20, 1 << 30}, 141 << 30: {64 << 20, 1 << 30},
	} {
		if sample, hunt := quarantineFor(memory); sample != want[0] || hunt != want[1] {
			t.Errorf("%d bytes: %d and %d, want %v", memory, sample, hunt, want)
		}
	}
}

func TestSamplerChoosesByBytes(t *testing.T) {
	for _, size := range []uint64{1, 100, 10_000, 1_000_000} {
		const n, mean = 200_000, 10_000
		samples := 0
		for range n {
			if rateOf(mean).chooses(size) {
				samples++
			}
		}
		want := n * -math.Expm1(-float64(size)/mean)
		if diff := math.Abs(float64(samples) - want); diff > 6*math.Sqrt(want)+1 {
			t.Errorf("size %d: %d chosen, want about %.0f", size, samples, want)
		}
	}
}

// Concurrent callers must neither hide each other's blocks nor stop the
// sampling: a countdown that two of them cross at once would.
func TestSamplerGoesOnUnderConcurrentCallers(t *testing.T) {
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 10_000 {
				if !rateOf(64).chooses(1 << 20) {
					t.Error("a block of 16384 mean gaps was passed over")
					return
				}
			}
		})
	}
	group.Wait()
}

func TestSuspectsAreBoundedAndOrdered(t *testing.T) {
	var l launchLog
	l.resize(16) // two a shard
	add := func(id uint64, stream core.StreamID) {
		l.addRecorded(&launchRecord{use: core.UseRecord{LaunchID: id, Stream: stream}, began: l.now()})
	}
	add(1, 0)
	add(2, 1)
	add(3, 2) // the last one on stream 2 before
	from := l.tick()
	add(4, 1)
	add(5, 1)
	add(6, 1) // drives out 2, and then 4
	w := window{from: from, to: l.tick(), stream: 0}
	add(7, 3)
	ids := func(limit int) (got []uint64) {
		found, _, _ := l.suspects(w, []core.UseRecord{{LaunchID: 5}}, limit)
		for _, u := range found {
			got = append(got, u.LaunchID)
		}
		return got
	}
	if got := ids(9); !slices.Equal(got, []uint64{5, 6, 7, 3}) {
		t.Errorf("suspects %v, want 5 (used the victim), 6, 7 (on another stream, since), 3", got)
	}
	if _, more, _ := l.suspects(w, nil, 9); !more {
		t.Error("a launch within the window was forgotten, and nobody says that there may be more")
	}
	if _, more, _ := l.suspects(window{from: w.to, to: w.to}, nil, 9); more {
		t.Error("what was forgotten before the window counts")
	}
	if got := ids(1); len(got) != 1 {
		t.Errorf("%d suspects, want 1", len(got))
	}
}

// Behind those that touched the victim come those that write, and what was
// enqueued since on other streams, where nothing orders the comparison before it.
func TestWritersAreSuspectedFirst(t *testing.T) {
	var l launchLog
	l.resize(64)
	add := func(id uint64, stream core.StreamID, access core.Access) {
		l.addRecorded(&launchRecord{use: core.UseRecord{LaunchID: id, Stream: stream, Access: access}, began: l.now()})
	}
	add(1, 2, core.Read) // the last ones before
	add(2, 3, core.Write)
	from := l.tick()
	add(3, 0, core.Write)
	add(4, 0, core.Read)
	add(5, 1, core.ReadWrite)
	add(6, 1, core.Read)
	add(7, 0, core.Read) // touches the victim
	w := window{from: from, to: l.tick(), stream: 0}
	add(8, 0, core.Write) // ordered behind the comparison
	add(9, 4, core.Read)
	add(10, 5, core.Write)
	add(11, 5, core.Write)
	ids := func(w window) (got []uint64) {
		found, _, _ := l.suspects(w, []core.UseRecord{{LaunchID: 7}, {LaunchID: 12}}, 16)
		for _, u := range found {
			got = append(got, u.LaunchID)
		}
		return got
	}
	if got, want := ids(w), []uint64{7, 3, 5, 4, 6, 10, 11, 9, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("suspects %v, want %v", got, want)
	}
	for limit, want := range map[int]bool{9: true, 10: false} {
		if _, more, _ := l.suspects(w, nil, limit); more != want {
			t.Errorf("of ten suspects at most %d are named: more is %v", limit, more)
		}
	}
	w.from, w.few = l.tick(), 3
	w.to = l.tick()
	add(13, 6, core.Write)
	if got, want := ids(w), []uint64{13, 11, 2}; !slices.Equal(got, want) {
		t.Errorf("suspects of a narrow window %v, want %v", got, want)
	}
}

// A block may stay in quarantine for longer than the log remembers launches.
// Those that the block remembers are suspects all the same.
func TestForgottenLaunchesThatTouchedTheVictimAreSuspects(t *testing.T) {
	var l launchLog
	l.resize(8) // one a shard
	from := l.tick()
	touched := []core.UseRecord{{LaunchID: 1, Launch: "first"}, {LaunchID: 2, Launch: "second"}}
	for _, id := range []uint64{1, 2} {
		l.addRecorded(&launchRecord{use: core.UseRecord{LaunchID: id}, began: l.now()})
	}
	w := window{from: from, to: l.tick(), recalls: true}
	got, _, _ := l.suspects(w, touched, 16)
	if len(got) != 2 || got[0].LaunchID != 2 || got[1].Launch != "first" {
		t.Errorf("suspects %v", got)
	}
	w.recalls = false
	if got, _, _ := l.suspects(w, touched, 16); len(got) != 1 || got[0].LaunchID != 2 {
		t.Errorf("suspects %v of a window that recalls nobody", got)
	}
	w = window{from: l.now(), to: l.tick(), recalls: true}
	if got, _, _ := l.suspects(w, touched, 16); len(got) != 0 {
		t.Errorf("used before the window: %v", got)
	}
}

func TestTheThrottleAllowsSoManyInASecond(t *testing.T) {
	asked := 5000
	if testing.Short() {
		asked = 200 // more than ever are allowed at once
	}
	for _, perSecond := range []uint64{1, 7, 100, 150, 200, 1000} {
		var b throttle
		b.perSecond = perSecond
		allowed := func(now uint64) (n uint64) {
			for range asked {
				if b.allows(now, 1) {
					n++
				}
			}
			return n
		}
		if n, most := allowed(1000), perSecond/ticksPerSecond+1; n < 1 || n > most {
			t.Errorf("%d a second: %d at once, want one at least and %d at most", perSecond, n, most)
		}
		var sum uint64
		for now := uint64(1001); now <= 2000; now++ {
			sum += allowed(now)
		}
		if want := 10 * perSecond; sum < want-1 || sum > want+1 {
			t.Errorf("%d a second: %d in ten seconds", perSecond, sum)
		}
		if n := allowed(100_000); n > perSecond/ticksPerSecond+1 {
			t.Errorf("%d a second: %d at once after a pause", perSecond, n)
		}
	}
}

func TestTheThrottleHoldsUnderConcurrentUse(t *testing.T) {
	var b throttle
	b.perSecond = 400
	var group sync.WaitGroup
	var allowed atomic.Uint64
	for g := range 8 {
		group.Go(func() {
			for now := uint64(1); now <= 500; now++ {
				for range 20 {
					if b.allows(now, core.StreamID(g)) {
						allowed.Add(1)
					}
				}
			}
		})
	}
	group.Wait()
	if n := allowed.Load(); n < 500 || n > 500*4+5 || n+b.skipped() != 8*500*20 {
		t.Errorf("%d allowed and %d skipped in 500 ticks of 4", n, b.skipped())
	}
}

// A launch that was prepared while the guard was on and ends when it is off, with
// nothing else known, is forgotten all the same: its intent is somebody else's soon.
func TestALaunchThatEndsWhenTheGuardIsOffIsForgotten(t *testing.T) {
	ctx, fake := context.Background(), coretest.NewFake(0)
	unknown := must.Get(fake.Allocate(ctx, core.Request{Bytes: 512, Stream: 1}))(t)
	r := must.Get(New(fake, Config{Mode: Hunt, Advanced: Advanced{Hunt: HuntConfig{Bisect: true}}}))(t)
	ticket := must.Get(r.PrepareUse(ctx, core.UseRequest{Stream: 1, Launch: "last", Uses: []core.Use{{Block: unknown.ID, Access: core.Write}}}))(t)
	must.Do(t, r.SetMode(ctx, Off), r.FinishUse(ctx, ticket))
	if r.launches.writing(unknown.ID.Generation) {
		t.Error("a launch that has ended is taken for open")
	}
}
