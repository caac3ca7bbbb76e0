package telemetry_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

func TestGoldenLifeOfABlock(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	ctx := r.request(t)
	b := must.Get(r.Allocate(ctx, core.Request{Bytes: 256, Requested: 100, Stream: 1, Tag: "sort.keys"}))(t)
	for _, stream := range []core.StreamID{2, 3} {
		ticket := must.Get(r.PrepareUse(ctx, core.UseRequest{Stream: stream, Launch: "radix", Uses: uses(core.ReadWrite, b)}))(t)
		must.Do(t, r.FinishUse(ctx, ticket))
	}
	must.Get(r.Deallocate(ctx, b.ID))(t)
	const block = " generation=#1 tag=sort.keys block.requested=100 block.bytes=256"
	r.wantSpans(t,
		"alloc/1 sort.keys in caller cuda.device.index=0 stream.id=1"+block+" block.state=live",
		"prepare/1 radix in launch/1 cuda.device.index=0 stream.id=2 launch.name=radix"+block+" access=read_write block.state=live waits.queued=1 waits.elided=2 -> alloc/1{stream.id=1}",
		"finish/1 radix in launch/1 cuda.device.index=0 stream.id=2 launch.name=radix"+block+" access=read_write block.state=live",
		"launch/1 radix in caller cuda.device.index=0 stream.id=2 launch.name=radix launch.id=n launch.uses=1 launch.cross_stream=true waits.queued=1 waits.elided=2 launch.outcome=finished",
		"prepare/2 radix in launch/2 cuda.device.index=0 stream.id=3 launch.name=radix"+block+" access=read_write block.state=live waits.queued=1 waits.elided=2 -> finish/1{stream.id=2}",
		"finish/2 radix in launch/2 cuda.device.index=0 stream.id=3 launch.name=radix"+block+" access=read_write block.state=live",
		"launch/2 radix in caller cuda.device.index=0 stream.id=3 launch.name=radix launch.id=n launch.uses=1 launch.cross_stream=true waits.queued=1 waits.elided=2 launch.outcome=finished",
		"dealloc/1 sort.keys in caller cuda.device.index=0 stream.id=1"+block+" block.state=retired",
	)
}

// Each of several blocks gets its own pair of spans and only its own links.
func TestGoldenLaunchOfTwoBlocks(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	quiet := unsampled(t.Context())
	near := must.Get(r.Allocate(quiet, core.Request{Bytes: 64, Stream: 1, Tag: "near"}))(t)
	far := must.Get(r.Allocate(quiet, core.Request{Bytes: 32, Stream: 2, Tag: "far"}))(t)
	before := must.Get(r.PrepareUse(r.request(t), core.UseRequest{Stream: 2, Uses: uses(core.Write, far)}))(t)
	must.Do(t, r.FinishUse(t.Context(), before))
	join := must.Get(r.PrepareUse(r.request(t), core.UseRequest{Stream: 1, Uses: uses(core.Read, near, far)}))(t)
	must.Do(t, r.FinishUse(t.Context(), join))
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
	b := must.Get(r.Allocate(unsampled(t.Context()), core.Request{Bytes: 64, Stream: 1}))(t)
	ticket := must.Get(r.PrepareUse(r.request(t), core.UseRequest{Stream: 2, Uses: uses(core.Read, b)}))(t)
	must.Do(t, r.AbortUse(t.Context(), ticket))
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
		blocks = append(blocks, must.Get(r.Allocate(unsampled(t.Context()), core.Request{Bytes: 16, Requested: 10, Stream: 1}))(t))
	}
	all := append(uses(core.Read, blocks[:2]...), uses(core.Write, blocks[2:]...)...)
	many := must.Get(r.PrepareUse(r.request(t), core.UseRequest{Stream: 1, Launch: "many", Uses: all}))(t)
	must.Do(t, r.FinishUse(t.Context(), many))
	again := must.Get(r.PrepareUse(r.request(t), core.UseRequest{Stream: 2, Uses: uses(core.Read, blocks[7])}))(t)
	must.Do(t, r.AbortUse(t.Context(), again))
	const sums = " cuda.device.index=0 stream.id=1 launch.name=many generations=33 launch.uses=33 block.requested=330 block.bytes=528 access=read_write"
	r.wantSpans(t,
		"prepare/1 many in launch/1"+sums+" waits.queued=0 waits.elided=0",
		"finish/1 many in launch/1"+sums,
		"launch/1 many in caller cuda.device.index=0 stream.id=1 launch.name=many launch.id=n launch.uses=33 launch.cross_stream=false waits.queued=0 waits.elided=0 launch.outcome=finished",
		"prepare/2 in launch/2 cuda.device.index=0 stream.id=2 generation=#1 tag=untagged block.requested=10 block.bytes=16 access=read block.state=live waits.queued=1 waits.elided=2 -> finish/1{stream.id=1}",
		"launch/2 in caller cuda.device.index=0 stream.id=2 launch.id=n launch.uses=1 launch.cross_stream=true waits.queued=1 waits.elided=2 launch.outcome=aborted",
	)
}

// A batch of 33 blocks that all wait has all the links on its one span.
func TestManyWaitsLinkFromOneSpan(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	var blocks []core.Block
	for range telemetry.MaxUseSpans + 1 {
		blocks = append(blocks, must.Get(r.Allocate(r.request(t), core.Request{Bytes: 16, Stream: 1}))(t))
	}
	r.recorder.Reset()
	ticket := must.Get(r.PrepareUse(r.request(t), core.UseRequest{Stream: 2, Uses: uses(core.Read, blocks...)}))(t)
	must.Do(t, r.AbortUse(t.Context(), ticket))
	if links := r.recorder.Ended()[0].Links(); len(links) != len(blocks) {
		t.Errorf("%d links, want %d", len(links), len(blocks))
	}
}

// The launch function's spans nest under the launch, which stays open around
// the function and closes when the launch is finished, even late and from
// elsewhere.
func TestLaunchFunctionNestsUnderTheLaunch(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	b := must.Get(r.Allocate(unsampled(t.Context()), core.Request{Bytes: 64, Stream: 1}))(t)
	runtime := must.Get(core.NewRuntime(r, nil))(t)
	err := runtime.LaunchNamed(r.request(t), "k", 1, uses(core.Write, b), func(ctx context.Context) error {
		_, span := r.provider.Tracer("app").Start(ctx, "app.work")
		span.End()
		return nil
	})
	must.Do(t, err)
	ended := r.recorder.Ended()
	work, launch := ended[1], ended[3]
	if work.Name() != "app.work" || launch.Name() != "gpumem.launch k" || work.Parent().SpanID() != launch.SpanContext().SpanID() {
		t.Errorf("spans: %v", render(ended))
	}
}

func TestLateFinishClosesTheLaunch(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	b := must.Get(r.Allocate(unsampled(t.Context()), core.Request{Bytes: 64, Stream: 1}))(t)
	ctx, parent := r.provider.Tracer("app").Start(t.Context(), "request")
	ticket := must.Get(r.PrepareUse(ctx, core.UseRequest{Stream: 1, Uses: uses(core.Write, b)}))(t)
	parent.End()
	must.Get(r.Deallocate(unsampled(t.Context()), b.ID))(t)
	must.Do(t, r.FinishUse(unsampled(context.Background()), ticket))
	ended := render(r.recorder.Ended())
	const finish = "finish/1 in launch/1 cuda.device.index=0 stream.id=1 generation=#1 tag=untagged block.requested=64 block.bytes=64 access=write block.state=retired"
	if len(ended) != 4 || ended[2] != finish {
		t.Errorf("spans: %q, want the finish of a retired block third", ended)
	}
}

// A second end of a ticket is refused below and changes no span.
func TestSecondEndMakesNoSpan(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	b := must.Get(r.Allocate(unsampled(t.Context()), core.Request{Bytes: 64, Stream: 1}))(t)
	ticket := must.Get(r.PrepareUse(r.request(t), core.UseRequest{Stream: 1, Uses: uses(core.Write, b)}))(t)
	must.Do(t, r.AbortUse(t.Context(), ticket))
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
	b := must.Get(ours.Allocate(unsampled(t.Context()), core.Request{Bytes: 64, Stream: 1}))(t)
	ticket := must.Get(ours.PrepareUse(ours.request(t), core.UseRequest{Stream: 1, Uses: uses(core.Write, b)}))(t)
	if theirs.AbortUse(t.Context(), ticket) == nil {
		t.Fatal("a foreign ticket was accepted")
	}
	must.Do(t, ours.FinishUse(t.Context(), ticket))
	if got := len(ours.recorder.Ended()); got != 3 {
		t.Errorf("%d spans, want prepare, finish and launch", got)
	}
	theirs.wantSpans(t)
}

// Layers below get a context with the span, so that their logs correlate.
func TestUpstreamSeesTheSpan(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	spy := &spanSpy{Fake: r.fake.Fake, seen: map[oplog.Op]core.SpanRef{}}
	observed := must.Get(telemetry.NewResource(spy, telemetry.Config{TracerProvider: r.provider}))(t)
	b := must.Get(observed.Allocate(r.request(t), core.Request{Bytes: 64}))(t)
	if got, want := spy.within, r.recorder.Ended()[0].SpanContext(); !got.Equal(want) {
		t.Errorf("upstream saw span %v, want %v", got.SpanID(), want.SpanID())
	}
	if ref := spy.request.Span; trace.SpanID(ref.SpanID) != spy.within.SpanID() || trace.TraceID(ref.TraceID) != spy.within.TraceID() {
		t.Errorf("the request refers to span %v, want %v", ref, spy.within)
	}
	must.Get(observed.Deallocate(r.request(t), b.ID))(t)
}
