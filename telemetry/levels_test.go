package telemetry_test

import (
	"context"
	"errors"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// contextSpy notes what an allocation is called with.
type contextSpy struct {
	*coretest.Fake
	seen    trace.SpanContext
	request core.Request
}

func (s *contextSpy) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	s.seen, s.request = trace.SpanContextFromContext(ctx), r
	return s.Fake.Allocate(ctx, r)
}

// life runs every traced operation once, on two streams.
func life(ctx context.Context, t *testing.T, r core.Resource) {
	t.Helper()
	b := must[core.Block](t)(r.Allocate(ctx, core.Request{Bytes: 64, Stream: 1, Tag: "life"}))
	for _, stream := range []core.StreamID{2, 3} {
		ticket := must[core.Ticket](t)(r.PrepareUse(ctx, core.UseRequest{Stream: stream, Uses: uses(core.Write, b)}))
		check(t, r.FinishUse(ctx, ticket))
	}
	must[core.Block](t)(r.Deallocate(ctx, b.ID))
}

func TestRootsStartWithoutAParent(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	life(t.Context(), t, r)
	roots := 0
	for _, s := range r.recorder.Ended() {
		if !s.Parent().IsValid() {
			roots++
		}
	}
	if roots != 4 {
		t.Errorf("%d root spans, want the alloc, two launches and the dealloc", roots)
	}
}

func TestNoRootsFollowsRequestsOnly(t *testing.T) {
	r := newTraced(t, telemetry.Config{NoRoots: true})
	life(t.Context(), t, r)
	r.wantSpans(t)
	life(r.request(t), t, r)
	if got := len(r.recorder.Ended()); got != 8 {
		t.Errorf("%d spans under a request, want 8", got)
	}
}

func TestUnsampledParentMakesNoSpan(t *testing.T) {
	r := newTraced(t, telemetry.Config{}, sdktrace.WithSampler(sdktrace.AlwaysSample()))
	life(unsampled(t.Context()), t, r)
	r.wantSpans(t)
}

// The launch function of a launch whose root was not sampled must not start a
// trace of its own.
func TestUnsampledRootIsPassedOn(t *testing.T) {
	r := newTraced(t, telemetry.Config{}, sdktrace.WithSampler(sdktrace.NeverSample()))
	life(t.Context(), t, r)
	r.wantSpans(t)
	b := must[core.Block](t)(r.Allocate(t.Context(), core.Request{Bytes: 64}))
	ticket := must[core.Ticket](t)(r.PrepareUse(t.Context(), core.UseRequest{Uses: uses(core.Write, b)}))
	sc := trace.SpanContextFromContext(ticket.Context(t.Context()))
	if !sc.IsValid() || sc.IsSampled() {
		t.Errorf("the launch function gets %v, want the unsampled launch", sc)
	}
	check(t, r.AbortUse(t.Context(), ticket))
}

func TestLevelOffMakesNoSpan(t *testing.T) {
	r := newTraced(t, telemetry.Config{Level: telemetry.LevelOff})
	life(r.request(t), t, r)
	r.wantSpans(t)
}

func TestLevelsHaveNames(t *testing.T) {
	for level, name := range []string{"operations", "launches", "off"} {
		got, err := telemetry.ParseLevel(name)
		if err != nil || got != telemetry.Level(level) || got.String() != name {
			t.Errorf("%q is read as %v, %v", name, got, err)
		}
	}
	if _, err := telemetry.ParseLevel("loud"); !errors.Is(err, core.ErrInvalidRequest) || telemetry.Level(9).String() != "level(9)" {
		t.Errorf("an unknown level: %v, %v", err, telemetry.Level(9))
	}
}

// spanSpy notes which span each call is told to name in its reports.
type spanSpy struct {
	*coretest.Fake
	seen map[core.Op]core.SpanRef
}

func (s *spanSpy) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	s.seen[core.OpAllocate] = core.SpanOf(ctx)
	return s.Fake.Allocate(ctx, r)
}

func (s *spanSpy) PrepareUse(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
	s.seen[core.OpPrepare] = core.SpanOf(ctx)
	return s.Fake.PrepareUse(ctx, r)
}

func (s *spanSpy) FinishUse(ctx context.Context, ticket core.Ticket) error {
	s.seen[core.OpFinish] = core.SpanOf(ctx)
	return s.Fake.FinishUse(ctx, ticket)
}

func (s *spanSpy) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	s.seen[core.OpReserve] = core.SpanOf(ctx)
	return s.Fake.Reserve(ctx, bytes, tag)
}

// At every level the layers below are told a span: the operation's, and where
// it has none the caller's. Outside a sampled trace they are told none.
func TestLayersBelowAreToldTheSpan(t *testing.T) {
	for _, level := range []telemetry.Level{telemetry.LevelOperations, telemetry.LevelLaunches, telemetry.LevelOff} {
		r := newTraced(t, telemetry.Config{})
		spy := &spanSpy{Fake: r.fake.Fake, seen: map[core.Op]core.SpanRef{}}
		observed := must[*telemetry.Resource](t)(telemetry.NewResource(spy, telemetry.Config{TracerProvider: r.provider, Level: level}))
		for _, sampled := range []bool{true, false} {
			ctx := unsampled(t.Context())
			if sampled {
				ctx = r.request(t)
			}
			clear(spy.seen)
			b := must[core.Block](t)(observed.Allocate(ctx, core.Request{Bytes: 64, Stream: 1}))
			ticket := must[core.Ticket](t)(observed.PrepareUse(ctx, core.UseRequest{Stream: 1, Uses: uses(core.Read, b)}))
			check(t, observed.FinishUse(t.Context(), ticket))
			if _, err := observed.Reserve(ctx, 1, "a"); err == nil {
				t.Fatal("the fake reserves")
			}
			spans := map[core.SpanRef]string{{}: "none", {TraceID: [16]byte{1}, SpanID: [8]byte{2}}: "caller"}
			for _, s := range r.recorder.Ended() {
				spans[core.SpanRef{TraceID: s.SpanContext().TraceID(), SpanID: s.SpanContext().SpanID()}] = s.Name()
			}
			want := map[core.Op]string{core.OpAllocate: "caller", core.OpPrepare: "caller", core.OpFinish: "none", core.OpReserve: "caller"}
			if level <= telemetry.LevelLaunches {
				want[core.OpPrepare], want[core.OpFinish] = "gpumem.launch", "gpumem.launch"
			}
			if level == telemetry.LevelOperations {
				want[core.OpAllocate] = "gpumem.alloc"
			}
			for op, name := range want {
				if !sampled {
					name = "none"
				}
				if got := spans[spy.seen[op]]; got != name {
					t.Errorf("%v, sampled %v: %v is told %q, want %q", level, sampled, op, got, name)
				}
			}
		}
	}
}

func TestGoldenLevelLaunches(t *testing.T) {
	r := newTraced(t, telemetry.Config{Level: telemetry.LevelLaunches})
	life(r.request(t), t, r)
	r.wantSpans(t,
		"launch/1 in caller cuda.device.index=0 stream.id=2 launch.id=n launch.uses=1 launch.cross_stream=true waits.queued=1 waits.elided=2 launch.outcome=finished",
		"launch/2 in caller cuda.device.index=0 stream.id=3 launch.id=n launch.uses=1 launch.cross_stream=true waits.queued=1 waits.elided=2 launch.outcome=finished -> launch/1{stream.id=2}",
	)
}

func TestLevelLaunchesRefused(t *testing.T) {
	r := newTraced(t, telemetry.Config{Level: telemetry.LevelLaunches})
	r.fake.FailNext("PrepareUse", errors.New("no"))
	if _, err := r.PrepareUse(r.request(t), core.UseRequest{Stream: 1}); err == nil {
		t.Fatal("the scripted failure did not come through")
	}
	r.wantSpans(t, "launch/1 in caller cuda.device.index=0 stream.id=1 launch.uses=0 launch.outcome=refused error.type=_OTHER Error(no)")
}

func TestNewResourceRefusesBadConfig(t *testing.T) {
	for name, call := range map[string]func() (*telemetry.Resource, error){
		"nil upstream": func() (*telemetry.Resource, error) { return telemetry.NewResource(nil, telemetry.Config{}) },
		"unknown level": func() (*telemetry.Resource, error) {
			return telemetry.NewResource(newFencing(), telemetry.Config{Level: 9})
		},
	} {
		if r, err := call(); r != nil || !errors.Is(err, core.ErrInvalidRequest) {
			t.Errorf("%s: got %v, %v", name, r, err)
		}
	}
}
