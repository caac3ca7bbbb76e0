package gputest

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// clocked(ns, times) takes that long and writes the device's time of its begin and its end.
var clocked = driver.Image{Name: "fencepost.clocked", PTX: []byte(`
.version 7.4
.target sm_75
.address_size 64

.visible .entry clocked(.param .u64 ns, .param .u64 times)
{
	.reg .pred %p<2>;
	.reg .b64 %rd<6>;

	mov.u64 %rd3, %globaltimer;
	ld.param.u64 %rd1, [ns];
	ld.param.u64 %rd2, [times];
	cvta.to.global.u64 %rd2, %rd2;
	st.global.u64 [%rd2], %rd3;
again:
	mov.u64 %rd4, %globaltimer;
	sub.s64 %rd5, %rd4, %rd3;
	setp.lt.u64 %p1, %rd5, %rd1;
	@%p1 bra again;
	st.global.u64 [%rd2+8], %rd4;
	ret;
}
`)}

// clockedOnSim is the same, of the time that the simulated device takes.
func clockedOnSim() sim.Kernel {
	began := time.Now()
	return sim.Kernel{Name: "clocked", Declare: func(a sim.Args) []sim.Range { return []sim.Range{sim.Writes(a.Ptr(1), 16)} },
		Run: func(x *sim.Exec) {
			times := sim.WriteSlice[uint64](x, x.Args().Ptr(1), 2)
			times[0] = uint64(time.Since(began))
			for time.Since(began) < time.Duration(times[0]+x.Args().U64(0)) {
				time.Sleep(time.Microsecond)
			}
			times[1] = uint64(time.Since(began))
		}}
}

// clockedLaunch is a launch as its kernel and its span tell of it, in nanoseconds.
type clockedLaunch struct {
	kernelBegan, kernelDone float64
	spanBegan, spanDone     float64
	queued, held            float64
	waits                   int
}

// The device's spans of launches of 2 µs to 50 ms on 8 streams, which wait for each other, are compared with what their
// kernels read of the device's timer. The two clocks run apart, so the line between them is drawn first.
func TestDeviceSpansAgreeWithTheKernels(t *testing.T) {
	const streams = 8
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	b := newBench(t, fencepost.Config{Guard: "off", TracerProvider: provider, TraceLevel: telemetry.LevelLaunches})
	if dryRun {
		must(t, b.hw.sim.RegisterModule(clocked.Name, clockedOnSim()))
	}
	module, err := cuda.LoadModule(b.Driver(), clocked)
	must(t, err)
	defer func() { must(t, module.Unload()) }()
	kernel, err := module.Kernel("clocked")
	must(t, err)
	seed := firstSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	leases := b.leases(streams)
	n := scaled(20_000, 200) / streams
	shared, times := make([]*words, streams), make([]*words, streams)
	for i, l := range leases {
		shared[i], times[i] = b.alloc(l, 1, "shared"), b.alloc(l, 2*n, "times")
	}
	launches := make([][]clockedLaunch, streams)
	for i := range n {
		for s, l := range leases {
			uses := []core.Use{shared[s].Use(core.Write), times[s].Use(core.Write)}
			if q := rng.IntN(4 * streams); q < streams && q != s {
				uses = append(uses, shared[q].Use(core.Read))
			}
			u := rng.Float64()
			takes := uint64(2_000 * math.Pow(25_000, u*u*u))
			must(t, b.LaunchNamed(ctx, "clocked", l.ID(), uses, func(context.Context) error {
				return kernel.Enqueue(l.Handle(), cuda.Blocks1D(1, 1), driver.U64(takes), driver.Ptr(times[s].Ptr()+uint64(16*i)))
			}))
			launches[s] = append(launches[s], clockedLaunch{})
		}
		if i%64 == 63 {
			must(t, b.Driver().Synchronize())
		}
	}
	must(t, b.Driver().Synchronize())
	must(t, b.Drain(ctx))
	must(t, b.ReapPending(ctx))
	all := b.clocked(recorder, leases, times, launches)
	b.give(slices.Concat(shared, times))
	t.Logf("%d launches of %d on %d streams have a span of the device", len(all), n*streams, streams)
	if len(all) != n*streams {
		t.Errorf("%d launches have none", n*streams-len(all))
	}
	agree(t, all)
}

// clocked joins what the kernels wrote with the spans: of a stream both are in the order of the launches.
func (b *bench) clocked(recorder *tracetest.SpanRecorder, leases []*cuda.Lease, times []*words, launches [][]clockedLaunch) (all []clockedLaunch) {
	b.Helper()
	spans := map[uint64][]sdktrace.ReadOnlySpan{}
	for _, s := range recorder.Ended() {
		if intOf(s, telemetry.AttrLaunchID) != 0 && s.Name() == string(telemetry.SpanDevice)+" clocked" {
			stream := uint64(intOf(s, telemetry.AttrStream))
			spans[stream] = append(spans[stream], s)
		}
	}
	for s, l := range leases {
		host := make([]byte, 16*len(launches[s]))
		must(b, b.Driver().CopyToHostAsync(host, times[s].Ptr(), l.Handle()))
		must(b, b.Driver().StreamSynchronize(l.Handle()))
		of := spans[uint64(l.ID())]
		slices.SortFunc(of, func(x, y sdktrace.ReadOnlySpan) int {
			return cmp.Compare(intOf(x, telemetry.AttrLaunchID), intOf(y, telemetry.AttrLaunchID))
		})
		for i, span := range of {
			if 16*i >= len(host) {
				break
			}
			all = append(all, clockedLaunch{
				kernelBegan: float64(binary.NativeEndian.Uint64(host[16*i:])), kernelDone: float64(binary.NativeEndian.Uint64(host[16*i+8:])),
				spanBegan: float64(span.StartTime().UnixNano()), spanDone: float64(span.EndTime().UnixNano()),
				queued: float64(intOf(span, telemetry.AttrQueued)), held: float64(intOf(span, telemetry.AttrHeld)), waits: len(span.Links()),
			})
		}
	}
	return all
}

func intOf(s sdktrace.ReadOnlySpan, key attribute.Key) int64 {
	for _, kv := range s.Attributes() {
		if kv.Key == key {
			return kv.Value.AsInt64()
		}
	}
	return 0
}

// agree compares ends and begins. A begin is compared where the stream was busy when the launch was enqueued: on an idle one the
// kernel begins when the host has enqueued it.
func agree(t *testing.T, all []clockedLaunch) {
	t.Helper()
	slices.SortFunc(all, func(x, y clockedLaunch) int { return cmp.Compare(x.kernelDone, y.kernelDone) })
	apart := func(l *clockedLaunch) float64 {
		return (l.spanDone - all[0].spanDone) - (l.kernelDone - all[0].kernelDone)
	}
	// The line goes through the medians of the first and the last quarter.
	quarter := len(all) / 4
	at := func(part []clockedLaunch) (x, y float64) {
		var xs, ys []float64
		for i := range part {
			xs, ys = append(xs, part[i].kernelDone-all[0].kernelDone), append(ys, apart(&part[i]))
		}
		slices.Sort(ys)
		slices.Sort(xs)
		return xs[len(xs)/2], ys[len(ys)/2]
	}
	x0, y0 := at(all[:quarter])
	x1, y1 := at(all[len(all)-quarter:])
	rate := (y1 - y0) / (x1 - x0)
	t.Logf("the host's clock gains %.1f µs a second on the device's", rate*1e6)
	var ends, begins, lasted []float64
	for i := range all {
		l := &all[i]
		line := y0 + rate*(l.kernelDone-all[0].kernelDone-x0)
		ends = append(ends, apart(l)-line)
		lasted = append(lasted, (l.spanDone-l.spanBegan)-(l.kernelDone-l.kernelBegan))
		if l.queued+l.held > 50_000 {
			lineB := y0 + rate*(l.kernelBegan-all[0].kernelDone-x0)
			begins = append(begins, (l.spanBegan-all[0].spanDone)-(l.kernelBegan-all[0].kernelDone)-lineB)
		}
	}
	t.Logf("end of the span less the kernel's, ns: %v", spread(ends))
	t.Logf("begin of the span less the kernel's, of %d on a busy stream, ns: %v", len(begins), spread(begins))
	t.Logf("the span's length less the kernel's, ns: %v", spread(lasted))
}

// spread is p1, p5, the median, p95 and p99.
func spread(of []float64) (at [5]int) {
	slices.Sort(of)
	for i, p := range [...]float64{0.01, 0.05, 0.5, 0.95, 0.99} {
		if len(of) > 0 {
			at[i] = int(of[min(len(of)-1, int(p*float64(len(of))))])
		}
	}
	return at
}
