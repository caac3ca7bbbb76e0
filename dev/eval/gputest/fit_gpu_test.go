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
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/traceio/fit"
	"github.com/fencepost-gpu/fencepost/internal/traceio/replay"
	"github.com/fencepost-gpu/fencepost/traces"
)

// limitedProgram is run as it likes to be recorded, and then under a limit. It returns how many requests were refused.
type limitedProgram struct {
	name  string
	guard fencepost.GuardMode
	run   func(b *bench) (refused uint64)
}

// What fit predicts of a program's log is what the same program takes of the GPU under a limit: the peak within two percent, no
// refusal where it says that it fits, and some where memory is less than what is live at once.
func TestAPredictionIsWhatTheGPUGives(t *testing.T) {
	gpu(t)
	var programs []limitedProgram
	for _, name := range traces.Names() {
		trace := loadTrace(t, name)
		programs = append(programs, limitedProgram{name, fencepost.GuardOff, func(b *bench) uint64 {
			r, err := replay.Play(ctx, trace, replay.Config{Runtime: b.Core(), Streams: b.Streams()})
			must(b, err)
			return r.Refusals
		}})
	}
	seed := firstSeed(t)
	for range 6 {
		seed := seed + uint64(len(programs))
		guard := []fencepost.GuardMode{fencepost.GuardOff, fencepost.GuardSample}[len(programs)%2]
		programs = append(programs, limitedProgram{fmt.Sprintf("random-%d", seed), guard, func(b *bench) uint64 { return b.comeAndGo(seed) }})
	}
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) { p.compare(t) })
	}
}

func (p limitedProgram) compare(t *testing.T) {
	var log bytes.Buffer
	if refused, _ := p.under(t, "recorded", 0, &log); refused > 0 {
		t.Fatalf("%d requests were refused without a limit", refused)
	}
	trace, err := alloctrace.Limits{Rows: 1 << 20, Bytes: 1 << 30}.Read(p.name, &log)
	must(t, err)
	r, err := fit.Predict(ctx, trace, fit.Machine{Resource: fencepost.Pool, Device: -1})
	must(t, err)
	margin := r.Needs/20 + 16<<20 // for blocks that are free behind a use on another stream
	for _, memory := range []uint64{r.Needs + margin, r.Needs + 4*margin} {
		r, err := fit.Predict(ctx, trace, fit.Machine{Resource: fencepost.Pool, Device: -1, Memory: memory})
		must(t, err)
		refused, stats := p.under(t, "fits", memory, &bytes.Buffer{})
		off := int64(stats.ReservedHigh) - int64(r.PeakReserved)
		t.Logf("%s: in %d MiB: predicted %d MiB held and %d live; it was %d held (%+.2f %%) and %d live, %d requests refused", p.name, memory>>20, r.PeakReserved>>20,
			r.PeakLive>>20, stats.ReservedHigh>>20, 100*float64(off)/float64(stats.ReservedHigh), stats.PeakRequested>>20, refused)
		slack := int64(stats.ReservedHigh / 50)
		if testing.Short() {
			slack += 64 << 20 // pages that each stream gets before it needs them are much of a small program
		}
		if !r.Fits || refused > 0 || max(off, -off) > slack {
			t.Errorf("it fits: %v; %d requests were refused, and the peak is %d bytes off", r.Fits, refused, off)
		}
	}
	less := max(r.PeakLive*9/10, 4<<20)
	if r, err := fit.Predict(ctx, trace, fit.Machine{Resource: fencepost.Pool, Device: -1, Memory: less}); err != nil || r.Fits {
		t.Errorf("%v: it fits into %d bytes of %d that are live at once", err, less, r.PeakLive)
	}
	if refused, _ := p.under(t, "less", less, &bytes.Buffer{}); refused == 0 {
		t.Errorf("nothing was refused in %d bytes", less)
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
