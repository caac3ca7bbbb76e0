package gputest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/traceio/fit"
	"github.com/fencepost-gpu/fencepost/internal/traceio/replay"
	"github.com/fencepost-gpu/fencepost/traces"
)

// limitedProgram is run as it likes to be recorded, and then under a limit. It returns how many requests were refused.
type limitedProgram struct {
	guard fencepost.GuardMode
	run   func(b *bench) (refused uint64)
}

// A limit of exactly what fit says is needed refuses a program nothing, however often it is run and whichever blocks its guard chooses, and
// what it holds then is in the interval that fit says. That is asked of recorded programs from their recordings, as another system has them, and of all
// programs from logs of their own. Less than what is live at once refuses something.
func TestAPredictionIsWhatTheGPUGives(t *testing.T) {
	gpu(t)
	guards := []fencepost.GuardMode{fencepost.GuardOff, fencepost.GuardSample}
	for _, name := range traces.Names() {
		trace := loadTrace(t, name)
		for _, guard := range guards {
			p := limitedProgram{guard, func(b *bench) uint64 {
				r, err := replay.Play(ctx, trace, replay.Config{Runtime: b.Core(), Streams: b.Streams()})
				must(b, err)
				return r.Refusals
			}}
			t.Run(fmt.Sprintf("%s/%s", name, guard), func(t *testing.T) {
				p.meets(t, trace, guard)
				p.meets(t, p.record(t, name), "")
			})
		}
	}
	seed := firstSeed(t)
	for i := range uint64(6) {
		seed := seed + i
		p := limitedProgram{guards[i%2], func(b *bench) uint64 { return b.comeAndGo(seed) }}
		name := fmt.Sprintf("random-%d/%s", seed, p.guard)
		t.Run(name, func(t *testing.T) { p.meets(t, p.record(t, name), "") })
	}
}

// record runs the program without a limit and reads its log.
func (p limitedProgram) record(t *testing.T, name string) *alloctrace.Trace {
	t.Helper()
	var log bytes.Buffer
	if refused, _ := p.under(t, "recorded", 0, &log); refused > 0 {
		t.Fatalf("%d requests were refused without a limit", refused)
	}
	trace, err := alloctrace.Limits{Rows: 1 << 20, Bytes: 1 << 30}.Read(name, &log)
	must(t, err)
	return trace
}

// meets runs the program under limits that follow from what fit says of a recording of it.
func (p limitedProgram) meets(t *testing.T, trace *alloctrace.Trace, guard fencepost.GuardMode) {
	t.Helper()
	machine := fit.Machine{Resource: fencepost.Pool, Guard: guard, Device: -1}
	r, err := fit.Predict(ctx, trace, machine)
	must(t, err)
	machine.Memory = r.Needs
	limited, err := fit.Predict(ctx, trace, machine)
	must(t, err)
	// Pages that each stream gets before it needs them are much of a small program.
	width, few := r.Needs-r.NeedsLeast, 8*sim.Granule
	t.Logf("%s, guard %s: %s, %.1f %% wide, %d to %d MiB held under that limit", trace.Name, r.Guard, r.Verdict(), 100*float64(width)/float64(r.Needs), limited.PeakReservedLeast>>20, limited.PeakReserved>>20)
	if width > r.Needs/10+few {
		t.Errorf("%s: an interval of %d to %d bytes says little", trace.Name, r.NeedsLeast, r.Needs)
	}
	runs := 3
	if testing.Short() {
		runs = 1
	}
	for range runs {
		refused, stats := p.under(t, "enough", r.Needs, &bytes.Buffer{})
		t.Logf("it held %d MiB, %d live at most, %d requests were refused", stats.ReservedHigh>>20, stats.PeakRequested>>20, refused)
		if slack := stats.ReservedHigh/50 + few; refused > 0 || stats.ReservedHigh > r.Needs || stats.ReservedHigh+slack < min(r.NeedsLeast, limited.PeakReservedLeast) {
			t.Errorf("%s: in %d bytes %d requests were refused, and %d bytes were held", trace.Name, r.Needs, refused, stats.ReservedHigh)
		}
	}
	machine.Memory = max((r.PeakLive-r.Quarantined)*9/10, 4<<20)
	if less, err := fit.Predict(ctx, trace, machine); err != nil || less.Fits {
		t.Errorf("%v: it fits into %d bytes of %d that are live at once", err, machine.Memory, r.PeakLive)
	}
	if refused, _ := p.under(t, "less", machine.Memory, &bytes.Buffer{}); refused == 0 {
		t.Errorf("nothing was refused in %d bytes", machine.Memory)
	}
}

// under runs the program in a runtime of its own.
func (p limitedProgram) under(t *testing.T, name string, memory uint64, log *bytes.Buffer) (refused uint64, stats core.Stats) {
	t.Run(name, func(t *testing.T) {
		sink := logging.NewJSONSink(log, logging.Queue{Size: 1 << 17})
		b := newBench(t, fencepost.Config{Resource: fencepost.Pool, Guard: p.guard, Streams: 64, Budget: memory, Pool: cuda.PoolConfig{Limit: memory}, LogSinks: []logging.Sink{sink}})
		b.meant = append(b.meant, names.FindingOutOfMemory)
		refused = p.run(b)
		stats = b.Stats()
		must(t, b.Drain(ctx))
		must(t, sink.Close(ctx))
		if sink.Dropped() > 0 {
			t.Errorf("%d records of the log are lost", sink.Dropped())
		}
	})
	return refused, stats
}

// comeAndGo has blocks of up to 256 MiB on four streams come, be written by one or another stream, and go when that is done.
func (b *bench) comeAndGo(seed uint64) (refused uint64) {
	b.Helper()
	type used struct {
		*words
		on *cuda.Lease
	}
	rng := rand.New(rand.NewPCG(seed, 0x666974))
	lanes := b.leases(4)
	largest, most := scaled(256<<20, 4<<20), uint64(scaled(4<<30, 64<<20))
	var live []used
	total := uint64(0)
	for i := range 400 {
		bytes := 8 + rng.IntN(1+rng.IntN(largest))
		if len(live) > 0 && (rng.IntN(5) < 2 || total+uint64(bytes) > most) {
			at := rng.IntN(len(live))
			w := live[at]
			live = slices.Delete(live, at, at+1)
			total -= w.Bytes()
			must(b, b.Streams().Synchronize(ctx, w.on.ID()))
			must(b, w.Free(ctx))
			continue
		}
		w, err := b.tryAlloc(pick(rng, lanes), bytes/8, "fit")
		on := pick(rng, lanes)
		if errors.Is(err, core.ErrOutOfBudget) || errors.Is(err, core.ErrOutOfMemory) {
			refused++
			continue
		}
		must(b, err)
		must(b, b.doWrite(on, w, uint64(i)))
		live, total = append(live, used{w, on}), total+w.Bytes()
	}
	for _, w := range live {
		must(b, w.Free(ctx))
	}
	return refused
}
