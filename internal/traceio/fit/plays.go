package fit

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/traceio/replay"
)

// play is one way in which a run of the program may go. A recording leaves two things open: which
// blocks a sampling guard chooses, and how far the device is behind the host.
type play struct {
	guard fencepost.GuardMode
	// padded plays the sizes that the recorded device was asked for.
	padded bool
	// seed draws what the guard chooses, and the order in which a device that lags runs what is
	// queued.
	seed uint64
	// lags is a device that is behind: a launch uses each new block, and the device runs what is
	// queued late. shares has that launch on another stream than the block's.
	lags, shares bool
}

// unbounded samples a block for each mean number of bytes, as if its rate had no bound. A program
// that runs much faster than recorded meets such a guard.
const unbounded fencepost.GuardMode = "sample:67108864"

// draws is how many plays the upper end must pass, where a play is random.
const draws = 8

// choosePlays finds the play that needs least, and those that the upper end must pass. There are
// none of the latter if every run goes like the first.
func (p *plan) choosePlays() {
	setting, err := debugguard.ParseMode(string(p.machine.Guard)) // an unknown one is refused when it is played
	guards := []fencepost.GuardMode{p.machine.Guard}
	p.sampled = err == nil && setting.Mode == debugguard.Sample
	switch {
	case p.machine.Guard == "":
		p.least = play{guard: fencepost.GuardOff, padded: true}
		if p.sampled = sampled(p.rows); p.sampled {
			guards = []fencepost.GuardMode{fencepost.GuardSample, unbounded}
		}
	case p.sampled:
		p.least = play{guard: fencepost.GuardLedger}
		if setting.SampleBytes == 0 {
			guards = append(guards, unbounded)
		}
	default:
		p.least = play{guard: p.machine.Guard}
	}
	late := p.machine.Resource != fencepost.Direct // which waits for the device at each free
	switch {
	case p.sampled:
		for i := range draws {
			turn := i / len(guards)
			one := play{guard: guards[i%len(guards)], seed: uint64(i + 1), lags: late && turn%2 == 1, shares: turn%4 == 3}
			p.others = append(p.others, one)
		}
	case late && err == nil && setting.Mode == debugguard.Hunt: // which takes a thousand times as long
		p.others = []play{{guard: p.machine.Guard, lags: true}}
	case late:
		for i := range draws / 2 {
			p.others = append(p.others, play{guard: p.least.guard, padded: p.least.padded, seed: uint64(i), lags: true,
				shares: i%2 == 1})
		}
	}
}

// The values of [Report.Guard] without a guard of the machine's.
const (
	// Recorded is the padding of the recording.
	Recorded = "recorded"
	// RecordedSample is a guard like the recording's, which chose some blocks by chance.
	RecordedSample = "recorded sample"
)

// guard is what [Report.Guard] says.
func (p *plan) guard() string {
	switch {
	case p.machine.Guard != "":
		return string(p.machine.Guard)
	case p.sampled:
		return RecordedSample
	}
	return Recorded
}

// sampled reports whether the recording has blocks with padding and blocks without, so that its
// guard drew them.
func sampled(rows []alloctrace.Row) bool {
	allocates := func(padded bool) func(alloctrace.Row) bool {
		return func(r alloctrace.Row) bool {
			return r.Action == alloctrace.Allocate && !r.IsEmpty() && r.Padded > r.Bytes == padded
		}
	}
	return slices.ContainsFunc(rows, allocates(true)) && slices.ContainsFunc(rows, allocates(false))
}

// quarantined is the most that the recording's guard may have had in quarantine. Its log has a
// block's free where the guard let the block go, not where the program freed it.
func quarantined(rows []alloctrace.Row) uint64 {
	live, _ := peak(rows, nil)
	most := min(debugguard.DefaultQuarantineBytes, max(debugguard.MinQuarantineBytes, live/16))
	guarded, _ := peak(rows, func(i int) bool { return rows[i].Padded > rows[i].Bytes && rows[i].Padded <= most })
	return min(most, guarded)
}

// upkeep is how often the recorded time has quarantine and pool looked at.
const upkeep = 500 * time.Millisecond

// try plays everything on a device of so much memory. Nothing goes on in the background, whose pace
// is that of this machine. The guard's clock, by which it rations samples, is the recording's.
func (p *plan) try(ctx context.Context, memory uint64, one play) (_ *outcome, err error) {
	o := &outcome{admitted: p.jobs.admit(memory, p.machine.Jobs)}
	trace := &alloctrace.Trace{Name: p.trace.Name, Format: p.trace.Format, Rows: p.rows, Passed: p.trace.Passed}
	if p.machine.Jobs > 0 {
		trace.Rows = p.jobs.move(p.rows, o.admitted)
	}
	var recorded atomic.Int64 // nanoseconds
	began := time.Now()
	cfg := fencepost.Config{Device: fencepost.Sim, Resource: p.machine.Resource, Guard: one.guard, Streams: 256,
		Budget: memory,
		Sim:    sim.Config{Bytes: memory / sim.Granule * sim.Granule}, Pool: cuda.PoolConfig{ReapInterval: -1},
		Async: cuda.AsyncConfig{ReapInterval: -1},
		GuardConfig: debugguard.Config{Advanced: debugguard.Advanced{UpkeepInterval: -1, SampleSeed: one.seed,
			Now: func() time.Time { return began.Add(time.Duration(recorded.Load())) }}}}
	if one.lags {
		cfg.Sim.Schedule = sim.Seeded(one.seed)
	}
	rt, err := fencepost.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		_, closing := rt.Close(context.WithoutCancel(ctx))
		err = errors.Join(err, closing)
	}()
	playing := replay.Config{Runtime: rt.Core(), Streams: rt.Streams(), Padded: one.padded}
	if p.machine.Resource != fencepost.Direct {
		playing.Pool = rt
	}
	if one.lags {
		var before, other *cuda.Lease // the one used last, and the last one that was another than that
		playing.Allocated = func(lease *cuda.Lease, b core.Block) error {
			if lease != before {
				before, other = lease, before
			}
			on := lease
			if one.shares && other != nil {
				on = other
			}
			return rt.Launch(ctx, on.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
				return rt.Driver().MemsetAsync(b.ID.Ptr, 0, 1, on.Handle())
			})
		}
	}
	follows, next, kept := newFollower(trace.Rows), 0, time.Duration(0)
	playing.Played = func(row *alloctrace.Row) {
		follows.played(row, rt.Stats)
		if next++; next == len(trace.Rows) {
			return
		}
		now := max(time.Duration(recorded.Load()), trace.Rows[next].Time-trace.Rows[0].Time)
		recorded.Store(int64(now))
		if now-kept >= upkeep {
			kept = now
			_ = rt.Core().Resource().ReapPending(ctx) // what fails stays for later
		}
	}
	if o.report, err = replay.Play(ctx, trace, playing); err != nil {
		return nil, err
	}
	o.stats, o.course = rt.Stats(), follows.course
	o.peakLive, _ = peak(trace.Rows, nil)
	return o, nil
}
