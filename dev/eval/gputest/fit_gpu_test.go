package gputest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
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

// limitedProgram is a program that is recorded, predicted, and run under limits that follow from
// the prediction.
type limitedProgram struct {
	name  string
	guard fencepost.GuardMode
	run   func(b *bench) (refused uint64)
	// trace is a recording of it, and machine what the prediction is for. limited is the prediction
	// for a limit of what predicted needs.
	trace              *alloctrace.Trace
	machine            fit.Machine
	predicted, limited *fit.Report
}

// A limit of exactly what fit says is needed refuses a program nothing, in each run and with each
// choice of blocks of its guard. The program then holds an amount in the interval that fit says. A
// limit below that interval refuses something.
//
// The programs are each recorded one and some random ones. A seed deals guards to them. It also
// says which are predicted from the recording, as another system has it, and which from a log of
// their own. Predictions need no GPU: all are made side by side.
func TestAPredictionIsWhatTheGPUGives(t *testing.T) {
	gpu(t)
	seed := firstSeed(t)
	guards := []fencepost.GuardMode{fencepost.GuardOff, fencepost.GuardSample}
	var programs []*limitedProgram
	for i, deal := range rand.New(rand.NewPCG(seed, 0x6465616c)).Perm(len(traces.Names())) {
		trace := loadTrace(t, traces.Names()[i])
		p := &limitedProgram{name: trace.Name, guard: guards[deal%2], run: func(b *bench) uint64 {
			r, err := replay.Play(ctx, trace, replay.Config{Runtime: b.Core(), Streams: b.Streams()})
			must(b, err)
			return r.Refusals
		}}
		if deal/2%2 == 0 {
			p.trace, p.machine.Guard = trace, p.guard
		}
		programs = append(programs, p)
	}
	for i := range uint64(4) {
		programs = append(programs, &limitedProgram{name: fmt.Sprintf("random-%d", seed+i), guard: guards[i%2],
			run: func(b *bench) uint64 { return b.comeAndGo(seed + i) }})
	}
	for _, p := range programs {
		if p.trace == nil {
			p.trace = p.record(t)
		}
	}
	var predicting sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, p := range programs {
		predicting.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			p.predict(t)
		})
	}
	predicting.Wait()
	if t.Failed() {
		return
	}
	for _, p := range programs {
		t.Run(p.String(), p.meets)
	}
}

// String is a name for a test.
func (p *limitedProgram) String() string {
	from := "recording"
	if p.machine.Guard == "" {
		from = "log"
	}
	return p.name + "/" + string(p.guard) + "/" + from
}

// record runs the program without a limit and reads its log.
func (p *limitedProgram) record(t *testing.T) *alloctrace.Trace {
	t.Helper()
	var log bytes.Buffer
	if refused, _ := p.under(t, p.String(), 0, &log); refused > 0 {
		t.Fatalf("%d requests were refused without a limit", refused)
	}
	trace, err := alloctrace.Limits{Rows: 1 << 20, Bytes: 1 << 30}.Read(p.name, &log)
	must(t, err)
	return trace
}

// predict makes the predictions, of a goroutine of its own.
func (p *limitedProgram) predict(t *testing.T) {
	p.machine.Resource, p.machine.Device = fencepost.Pool, -1
	for _, r := range []**fit.Report{&p.predicted, &p.limited} {
		var err error
		if *r, err = fit.Predict(ctx, p.trace, p.machine); err != nil {
			t.Errorf("%s: %v", p, err)
			return
		}
		p.machine.Memory = p.predicted.Needs
	}
}

// meets runs the program at both ends of what was predicted.
func (p *limitedProgram) meets(t *testing.T) {
	r, limited := p.predicted, p.limited
	// Pages that each stream gets before it needs them are much of a small program.
	width, few := r.Needs-r.NeedsLeast, 8*sim.Granule
	t.Logf("guard %s: %s, %.1f %% wide, %d to %d MiB held under that limit", r.Guard, r.Verdict(),
		100*float64(width)/float64(r.Needs), limited.PeakReservedLeast>>20, limited.PeakReserved>>20)
	if width > r.Needs/10+few {
		t.Errorf("an interval of %d to %d bytes says little", r.NeedsLeast, r.Needs)
	}
	runs := 3
	if testing.Short() {
		runs = 1
	}
	for range runs {
		refused, stats := p.under(t, "enough", r.Needs, &bytes.Buffer{})
		t.Logf("it held %d MiB, %d live at most, %d requests were refused", stats.ReservedHigh>>20, stats.PeakRequested>>20,
			refused)
		if slack := stats.ReservedHigh/50 + few; refused > 0 || stats.ReservedHigh > r.Needs ||
			stats.ReservedHigh+slack < min(r.NeedsLeast, limited.PeakReservedLeast) {
			t.Errorf("in %d bytes %d requests were refused, and %d bytes were held", r.Needs, refused, stats.ReservedHigh)
		}
	}
	less := max(r.NeedsLeast-min(r.NeedsLeast/50+few, r.NeedsLeast), 4<<20)
	refused, _ := p.under(t, "less", less, &bytes.Buffer{})
	if t.Logf("in %d MiB %d requests were refused", less>>20, refused); refused == 0 {
		t.Errorf("nothing was refused in %d bytes, and it needs %d at least", less, r.NeedsLeast)
	}
}

// under runs the program in a runtime of its own.
func (p *limitedProgram) under(t *testing.T, name string, memory uint64, log *bytes.Buffer) (refused uint64,
	stats core.Stats) {
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
