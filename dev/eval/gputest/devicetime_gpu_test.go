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

// clockedLaunch is a launch as its kernel, its span and CUPTI tell of it, in nanoseconds, so small that a float64 has them all.
type clockedLaunch struct {
	kernelBegan, kernelDone float64
	spanBegan, spanDone     float64
	queued, held            float64
	order                   int // of all streams' launches
	witnessed
}

// The device's spans of launches of 2 µs to 50 ms on 8 streams, which wait for each other, are compared with what their
// kernels read of the device's timer.
func TestDeviceSpansAgreeWithTheKernels(t *testing.T) {
	const streams = 8
	began := time.Now().UnixNano()
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
	all := b.clocked(recorder, leases, times, launches, began)
	b.give(slices.Concat(shared, times))
	t.Logf("%d launches of %d on %d streams have a span of the device", len(all), n*streams, streams)
	if len(all) != n*streams {
		t.Errorf("%d launches have none", n*streams-len(all))
	}
	agree(t, all)
	if kernels := witnessedKernels(t, "clocked", began); len(kernels) == n*streams {
		for i := range all {
			all[i].witnessed = kernels[all[i].order]
		}
		againstCUPTI(t, all)
	} else if kernels != nil {
		t.Errorf("CUPTI tells of %d launches of %d", len(kernels), n*streams)
	}
}

// clocked joins what the kernels wrote with the spans: of a stream both are in the order of the launches.
func (b *bench) clocked(recorder *tracetest.SpanRecorder, leases []*cuda.Lease, times []*words, launches [][]clockedLaunch, since int64) (all []clockedLaunch) {
	b.Helper()
	after := func(ns uint64) float64 { return float64(int64(ns) - since) }
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
				kernelBegan: after(binary.NativeEndian.Uint64(host[16*i:])), kernelDone: after(binary.NativeEndian.Uint64(host[16*i+8:])),
				spanBegan: after(uint64(span.StartTime().UnixNano())), spanDone: after(uint64(span.EndTime().UnixNano())),
				queued: float64(intOf(span, telemetry.AttrQueued)), held: float64(intOf(span, telemetry.AttrHeld)),
				order: i*len(leases) + s,
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

// The differences that most launches stay below, in nanoseconds. On an H100 they were 6.4 µs and 6.1.
const (
	endsApart   = 15_000
	beginsApart = 12_000
)

// agree compares ends and begins, in stretches of two seconds: what the clocks gain on each other within one is taken off.
// An end of a span is that of an event behind the kernel, and comes later where the device has much to do. A begin is
// compared where the stream was busy when the launch was enqueued: on an idle one the kernel begins when the host has enqueued it.
func agree(t *testing.T, all []clockedLaunch) {
	t.Helper()
	slices.SortFunc(all, func(x, y clockedLaunch) int { return cmp.Compare(x.kernelDone, y.kernelDone) })
	const stretch = 2e9
	var ends, begins []float64
	for from := 0; from < len(all); {
		to := from
		for to < len(all) && all[to].kernelDone-all[from].kernelDone < stretch {
			to++
		}
		part := all[from:to]
		apart := make([]float64, len(part))
		for i, l := range part {
			apart[i] = (l.spanDone - part[0].spanDone) - (l.kernelDone - part[0].kernelDone)
		}
		line := lineThrough(part, apart)
		for i, l := range part {
			ends = append(ends, apart[i]-line(l.kernelDone))
			if l.queued+l.held > 20_000 {
				begins = append(begins, (l.spanBegan-l.spanDone)-(l.kernelBegan-l.kernelDone))
			}
		}
		from = to
	}
	t.Logf("end of the span less the kernel's, ns: %v", spread(ends))
	t.Logf("begin of the span less the kernel's, as seen from their ends, of %d on a busy stream, ns: %v", len(begins), spread(begins))
	if dryRun {
		return // the machine may do other things meanwhile
	}
	if at := spread(ends); at[3]-at[1] > endsApart {
		t.Errorf("nine of ten ends are %d ns apart", at[3]-at[1])
	}
	if at := spread(begins); at[1] < -beginsApart || at[3] > beginsApart {
		t.Errorf("nine of ten begins are %d to %d ns from the kernel's", at[1], at[3])
	}
}

// lineThrough goes through the medians of the two halves.
func lineThrough(part []clockedLaunch, apart []float64) func(kernelDone float64) float64 {
	half := len(part) / 2
	middle := func(from, to int) (x, y float64) {
		if from == to {
			return 0, 0
		}
		ys := slices.Sorted(slices.Values(apart[from:to]))
		return part[(from+to)/2].kernelDone, ys[len(ys)/2]
	}
	x0, y0 := middle(0, half)
	x1, y1 := middle(half, len(part))
	rate := 0.0
	if half > 100 {
		rate = (y1 - y0) / (x1 - x0)
	}
	return func(at float64) float64 { return y1 + rate*(at-x1) }
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
