package telemetry_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

func TestGoldenLifeOfABlock(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	ctx := r.request(t)
	b := must[core.Block](t)(r.Allocate(ctx, core.Request{Bytes: 256, Requested: 100, Stream: 1, Tag: "sort.keys"}))
	for _, stream := range []core.StreamID{2, 3} {
		ticket := must[core.Ticket](t)(r.PrepareUse(ctx, core.UseRequest{Stream: stream, Launch: "radix", Uses: uses(core.ReadWrite, b)}))
		check(t, r.FinishUse(ctx, ticket))
	}
	must[core.Block](t)(r.Deallocate(ctx, b.ID))
	const block = " generation=#1 tag=sort.keys block.requested=100 block.bytes=256"
	r.wantSpans(t,
		"alloc/1 in caller cuda.device.index=0 stream.id=1"+block+" block.state=live",
		"prepare/1 in launch/1 cuda.device.index=0 stream.id=2 launch.name=radix"+block+" access=read_write block.state=live waits.queued=1 waits.elided=2 -> alloc/1{stream.id=1}",
		"finish/1 in launch/1 cuda.device.index=0 stream.id=2 launch.name=radix"+block+" access=read_write block.state=live",
		"launch/1 in caller cuda.device.index=0 stream.id=2 launch.name=radix launch.id=n launch.uses=1 launch.cross_stream=true waits.queued=1 waits.elided=2 launch.outcome=finished",
		"prepare/2 in launch/2 cuda.device.index=0 stream.id=3 launch.name=radix"+block+" access=read_write block.state=live waits.queued=1 waits.elided=2 -> finish/1{stream.id=2}",
		"finish/2 in launch/2 cuda.device.index=0 stream.id=3 launch.name=radix"+block+" access=read_write block.state=live",
		"launch/2 in caller cuda.device.index=0 stream.id=3 launch.name=radix launch.id=n launch.uses=1 launch.cross_stream=true waits.queued=1 waits.elided=2 launch.outcome=finished",
		"dealloc/1 in caller cuda.device.index=0 stream.id=1"+block+" block.state=retired",
	)
}

// Each of several blocks gets its own pair of spans and only its own links.
func TestGoldenLaunchOfTwoBlocks(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	quiet := unsampled(t.Context())
	near := must[core.Block](t)(r.Allocate(quiet, core.Request{Bytes: 64, Stream: 1, Tag: "near"}))
	far := must[core.Block](t)(r.Allocate(quiet, core.Request{Bytes: 32, Stream: 2, Tag: "far"}))
	before := must[core.Ticket](t)(r.PrepareUse(r.request(t), core.UseRequest{Stream: 2, Uses: uses(core.Write, far)}))
	check(t, r.FinishUse(t.Context(), before))
	join := must[core.Ticket](t)(r.PrepareUse(r.request(t), core.UseRequest{Stream: 1, Uses: uses(core.Read, near, far)}))
	check(t, r.FinishUse(t.Context(), join))
	r.wantSpans(t,
		"prepare/1 in launch/1 cuda.device.index=0 stream.id=2 generation=#1 tag=far block.requested=32 block.bytes=32 access=write block.state=live waits.queued=0 waits.elided=0",
		"finish/1 in launch/1 cuda.device.index=0 stream.id=2 generation=#1 tag=far block.requested=32 block.bytes=32 access=write block.state=live",
		"launch/1 in caller cuda.device.index=0 stream.id=2 launch.id=n launch.uses=1 launch.cross_stream=false waits.queued=0 waits.elided=0 launch.outcome=finished",
		"prepare/2 in launch/2 cuda.device.index=0 stream.id=1 generation=#2 tag=near block.requested=64 block.bytes=64 access=read block.state=live waits.queued=0 waits.elided=0",
		"prepare/3 in launch/2 cuda.device.index=0 stream.id=1 generation=#1 tag=far block.requested=32 block.bytes=32 access=read block.state=live waits.queued=1 waits.elided=2 -> finish/1{stream.id=2}",
		"finish/2 in launch/2 cuda.device.index=0 stream.id=1 generation=#2 tag=near block.requested=64 block.bytes=64 access=read block.state=live",
		"finish/3 in launch/2 cuda.device.index=0 stream.id=1 generation=#1 tag=far block.requested=32 block.bytes=32 access=read block.state=live",
		"launch/2 in caller cuda.device.index=0 stream.id=1 launch.id=n launch.uses=2 launch.cross_stream=true waits.queued=1 waits.elided=2 launch.outcome=finished",
	)
}

func TestWaitForUnsampledWorkHasNoLink(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	b := must[core.Block](t)(r.Allocate(unsampled(t.Context()), core.Request{Bytes: 64, Stream: 1}))
	ticket := must[core.Ticket](t)(r.PrepareUse(r.request(t), core.UseRequest{Stream: 2, Uses: uses(core.Read, b)}))
	check(t, r.AbortUse(t.Context(), ticket))
	for _, s := range r.recorder.Ended() {
		if len(s.Links()) != 0 {
			t.Errorf("%s links to work that nobody can see: %v", s.Name(), s.Links())
		}
	}
}

// A launch of many blocks has one span for each step, to bound its cost, and
// later waits for any of the blocks link to the one finish span.
func TestGoldenLaunchOfManyBlocks(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	var blocks []core.Block
	for range telemetry.MaxUseSpans + 1 {
		blocks = append(blocks, must[core.Block](t)(r.Allocate(unsampled(t.Context()), core.Request{Bytes: 16, Requested: 10, Stream: 1})))
	}
	all := append(uses(core.Read, blocks[:2]...), uses(core.Write, blocks[2:]...)...)
	many := must[core.Ticket](t)(r.PrepareUse(r.request(t), core.UseRequest{Stream: 1, Launch: "many", Uses: all}))
	check(t, r.FinishUse(t.Context(), many))
	again := must[core.Ticket](t)(r.PrepareUse(r.request(t), core.UseRequest{Stream: 2, Uses: uses(core.Read, blocks[7])}))
	check(t, r.AbortUse(t.Context(), again))
	const sums = " cuda.device.index=0 stream.id=1 launch.name=many generations=33 launch.uses=33 block.requested=330 block.bytes=528 access=read_write"
	r.wantSpans(t,
		"prepare/1 in launch/1"+sums+" waits.queued=0 waits.elided=0",
		"finish/1 in launch/1"+sums,
		"launch/1 in caller cuda.device.index=0 stream.id=1 launch.name=many launch.id=n launch.uses=33 launch.cross_stream=false waits.queued=0 waits.elided=0 launch.outcome=finished",
		"prepare/2 in launch/2 cuda.device.index=0 stream.id=2 generation=#1 tag=untagged block.requested=10 block.bytes=16 access=read block.state=live waits.queued=1 waits.elided=2 -> finish/1{stream.id=1}",
		"launch/2 in caller cuda.device.index=0 stream.id=2 launch.id=n launch.uses=1 launch.cross_stream=true waits.queued=1 waits.elided=2 launch.outcome=aborted",
	)
}

// A batch of 33 blocks that all wait has all the links on its one span.
func TestManyWaitsLinkFromOneSpan(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	var blocks []core.Block
	for range telemetry.MaxUseSpans + 1 {
		blocks = append(blocks, must[core.Block](t)(r.Allocate(r.request(t), core.Request{Bytes: 16, Stream: 1})))
	}
	r.recorder.Reset()
	ticket := must[core.Ticket](t)(r.PrepareUse(r.request(t), core.UseRequest{Stream: 2, Uses: uses(core.Read, blocks...)}))
	check(t, r.AbortUse(t.Context(), ticket))
	if links := r.recorder.Ended()[0].Links(); len(links) != len(blocks) {
		t.Errorf("%d links, want %d", len(links), len(blocks))
	}
}

// The launch function's spans nest under the launch, which stays open around
// the function and closes when the launch is finished, even late and from
// elsewhere.
func TestLaunchFunctionNestsUnderTheLaunch(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	b := must[core.Block](t)(r.Allocate(unsampled(t.Context()), core.Request{Bytes: 64, Stream: 1}))
	runtime := must[*core.Runtime](t)(core.NewRuntime(r, nil))
	err := runtime.LaunchNamed(r.request(t), "k", 1, uses(core.Write, b), func(ctx context.Context) error {
		_, span := r.provider.Tracer("app").Start(ctx, "app.work")
		span.End()
		return nil
	})
	check(t, err)
	ended := r.recorder.Ended()
	work, launch := ended[1], ended[3]
	if work.Name() != "app.work" || launch.Name() != string(telemetry.SpanLaunch) || work.Parent().SpanID() != launch.SpanContext().SpanID() {
		t.Errorf("spans: %v", render(ended))
	}
}

func TestLateFinishClosesTheLaunch(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	b := must[core.Block](t)(r.Allocate(unsampled(t.Context()), core.Request{Bytes: 64, Stream: 1}))
	ctx, parent := r.provider.Tracer("app").Start(t.Context(), "request")
	ticket := must[core.Ticket](t)(r.PrepareUse(ctx, core.UseRequest{Stream: 1, Uses: uses(core.Write, b)}))
	parent.End()
	must[core.Block](t)(r.Deallocate(unsampled(t.Context()), b.ID))
	check(t, r.FinishUse(unsampled(context.Background()), ticket))
	ended := render(r.recorder.Ended())
	const finish = "finish/1 in launch/1 cuda.device.index=0 stream.id=1 generation=#1 tag=untagged block.requested=64 block.bytes=64 access=write block.state=retired"
	if len(ended) != 4 || ended[2] != finish {
		t.Errorf("spans: %q, want the finish of a retired block third", ended)
	}
}

// A second end of a ticket is refused below and changes no span.
func TestSecondEndMakesNoSpan(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	b := must[core.Block](t)(r.Allocate(unsampled(t.Context()), core.Request{Bytes: 64, Stream: 1}))
	ticket := must[core.Ticket](t)(r.PrepareUse(r.request(t), core.UseRequest{Stream: 1, Uses: uses(core.Write, b)}))
	check(t, r.AbortUse(t.Context(), ticket))
	n := len(r.recorder.Ended())
	if r.AbortUse(t.Context(), ticket) == nil {
		t.Error("a second end was accepted")
	}
	if got := len(r.recorder.Ended()); got != n {
		t.Errorf("the second end made %d spans", got-n)
	}
	o := r.Operations()
	if o.Failed(oplog.OpAbort, metrics.ReasonStreamMisuse) != 1 {
		t.Error("the refusal was not counted")
	}
}

// The ticket of another runtime is refused there without touching its trace.
func TestForeignTicketKeepsItsTrace(t *testing.T) {
	ours, theirs := newTraced(t, telemetry.Config{}), newTraced(t, telemetry.Config{})
	b := must[core.Block](t)(ours.Allocate(unsampled(t.Context()), core.Request{Bytes: 64, Stream: 1}))
	ticket := must[core.Ticket](t)(ours.PrepareUse(ours.request(t), core.UseRequest{Stream: 1, Uses: uses(core.Write, b)}))
	if theirs.AbortUse(t.Context(), ticket) == nil {
		t.Fatal("a foreign ticket was accepted")
	}
	check(t, ours.FinishUse(t.Context(), ticket))
	if got := len(ours.recorder.Ended()); got != 3 {
		t.Errorf("%d spans, want prepare, finish and launch", got)
	}
	theirs.wantSpans(t)
}

// Layers below get a context with the span, so that their logs correlate.
func TestUpstreamSeesTheSpan(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	spy := &spanSpy{Fake: r.fake.Fake, seen: map[oplog.Op]core.SpanRef{}}
	observed := must[*telemetry.Resource](t)(telemetry.NewResource(spy, telemetry.Config{TracerProvider: r.provider}))
	b := must[core.Block](t)(observed.Allocate(r.request(t), core.Request{Bytes: 64}))
	if got, want := spy.within, r.recorder.Ended()[0].SpanContext(); !got.Equal(want) {
		t.Errorf("upstream saw span %v, want %v", got.SpanID(), want.SpanID())
	}
	if ref := spy.request.Span; trace.SpanID(ref.SpanID) != spy.within.SpanID() || trace.TraceID(ref.TraceID) != spy.within.TraceID() {
		t.Errorf("the request refers to span %v, want %v", ref, spy.within)
	}
	must[core.Block](t)(observed.Deallocate(r.request(t), b.ID))
}
