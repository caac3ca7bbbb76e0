package telemetry_test

import (
	"context"
	"errors"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// life runs every traced operation once, on two streams.
func life(ctx context.Context, t *testing.T, r core.Resource) {
	t.Helper()
	b := must.Get(r.Allocate(ctx, core.Request{Bytes: 64, Stream: 1, Tag: "life"}))(t)
	for _, stream := range []core.StreamID{2, 3} {
		ticket := must.Get(r.PrepareUse(ctx, core.UseRequest{Stream: stream, Uses: uses(core.Write, b)}))(t)
		must.Do(t, r.FinishUse(ctx, ticket))
	}
	must.Get(r.Deallocate(ctx, b.ID))(t)
}

// Without a parent the alloc, two launches and the dealloc are roots, if those are made.
func TestWhatIsTracedFollowsTheParentTheLevelAndTheSampler(t *testing.T) {
	quiet, always := unsampled, sdktrace.WithSampler(sdktrace.AlwaysSample())
	request, none := traced{}.request, func(ctx context.Context) context.Context { return ctx }
	for name, c := range map[string]struct {
		cfg          telemetry.Config
		option       sdktrace.TracerProviderOption
		parent       func(context.Context) context.Context
		roots, spans int
	}{
		"no parent":               {telemetry.Config{}, always, none, 4, 8},
		"no parent, no roots":     {telemetry.Config{NoRoots: true}, always, none, 0, 0},
		"a request, no roots":     {telemetry.Config{NoRoots: true}, always, func(context.Context) context.Context { return request(t) }, 0, 8},
		"an unsampled request":    {telemetry.Config{}, always, quiet, 0, 0},
		"a request, level off":    {telemetry.Config{Level: telemetry.LevelOff}, always, func(context.Context) context.Context { return request(t) }, 0, 0},
		"no parent, never sample": {telemetry.Config{}, sdktrace.WithSampler(sdktrace.NeverSample()), none, 0, 0},
	} {
		r := newTraced(t, c.cfg, c.option)
		life(c.parent(t.Context()), t, r)
		roots, ended := 0, r.recorder.Ended()
		for _, s := range ended {
			if !s.Parent().IsValid() {
				roots++
			}
		}
		if roots != c.roots || len(ended) != c.spans || len(r.recorder.Started()) != c.spans {
			t.Errorf("%s: %d spans, %d of them roots, want %d and %d", name, len(ended), roots, c.spans, c.roots)
		}
	}
}

// The launch function of a launch whose root was not sampled must not start a
// trace of its own.
func TestUnsampledRootIsPassedOn(t *testing.T) {
	r := newTraced(t, telemetry.Config{}, sdktrace.WithSampler(sdktrace.NeverSample()))
	b := must.Get(r.Allocate(t.Context(), core.Request{Bytes: 64}))(t)
	ticket := must.Get(r.PrepareUse(t.Context(), core.UseRequest{Uses: uses(core.Write, b)}))(t)
	sc := trace.SpanContextFromContext(ticket.Context(t.Context()))
	if !sc.IsValid() || sc.IsSampled() {
		t.Errorf("the launch function gets %v, want the unsampled launch", sc)
	}
	must.Do(t, r.AbortUse(t.Context(), ticket))
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

// spanSpy notes which span each call is told to name in its reports, and what an
// allocation is called with.
type spanSpy struct {
	*coretest.Fake
	seen    map[oplog.Op]core.SpanRef
	within  trace.SpanContext
	request core.Request
}

func (s *spanSpy) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	s.seen[oplog.OpAllocate], s.within, s.request = core.SpanOf(ctx), trace.SpanContextFromContext(ctx), r
	return s.Fake.Allocate(ctx, r)
}

func (s *spanSpy) PrepareUse(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
	s.seen[oplog.OpPrepare] = core.SpanOf(ctx)
	return s.Fake.PrepareUse(ctx, r)
}

func (s *spanSpy) FinishUse(ctx context.Context, ticket core.Ticket) error {
	s.seen[oplog.OpFinish] = core.SpanOf(ctx)
	return s.Fake.FinishUse(ctx, ticket)
}

func (s *spanSpy) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	s.seen[oplog.OpReserve] = core.SpanOf(ctx)
	return s.Fake.Reserve(ctx, bytes, tag)
}

// At every level the layers below are told a span: the operation's, and where
// it has none the caller's. Outside a sampled trace they are told none.
func TestLayersBelowAreToldTheSpan(t *testing.T) {
	for _, level := range []telemetry.Level{telemetry.LevelOperations, telemetry.LevelLaunches, telemetry.LevelOff} {
		r := newTraced(t, telemetry.Config{})
		spy := &spanSpy{Fake: r.fake.Fake, seen: map[oplog.Op]core.SpanRef{}}
		observed := must.Get(telemetry.NewResource(spy, telemetry.Config{TracerProvider: r.provider, Level: level}))(t)
		for _, sampled := range []bool{true, false} {
			ctx := unsampled(t.Context())
			if sampled {
				ctx = r.request(t)
			}
			clear(spy.seen)
			b := must.Get(observed.Allocate(ctx, core.Request{Bytes: 64, Stream: 1}))(t)
			ticket := must.Get(observed.PrepareUse(ctx, core.UseRequest{Stream: 1, Uses: uses(core.Read, b)}))(t)
			must.Do(t, observed.FinishUse(t.Context(), ticket))
			if _, err := observed.Reserve(ctx, 1, "a"); err == nil {
				t.Fatal("the fake reserves")
			}
			spans := map[core.SpanRef]string{{}: "none", {TraceID: [16]byte{1}, SpanID: [8]byte{2}}: "caller"}
			for _, s := range r.recorder.Ended() {
				spans[core.SpanRef{TraceID: s.SpanContext().TraceID(), SpanID: s.SpanContext().SpanID()}] = s.Name()
			}
			want := map[oplog.Op]string{oplog.OpAllocate: "caller", oplog.OpPrepare: "caller", oplog.OpFinish: "none", oplog.OpReserve: "caller"}
			if level <= telemetry.LevelLaunches {
				want[oplog.OpPrepare], want[oplog.OpFinish] = "gpumem.launch", "gpumem.launch"
			}
			if level == telemetry.LevelOperations {
				want[oplog.OpAllocate] = "gpumem.alloc"
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

var (
	copyStep = oplog.Step{Stream: 3, Direction: "to_host", Bytes: 64}
	waitStep = oplog.Step{Stream: 3}
)

func newSteps(level telemetry.Level) (func(context.Context, oplog.Step) func(error), *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	return telemetry.Steps(telemetry.Config{TracerProvider: provider, Level: level}, 2), recorder
}

func TestStepsOfASampledTraceAreSpans(t *testing.T) {
	for level, want := range map[telemetry.Level][]string{
		telemetry.LevelOperations: {
			"copy/1 to_host in caller cuda.device.index=2 stream.id=3 copy.direction=to_host copy.bytes=64",
			"wait/1 stream in caller cuda.device.index=2 stream.id=3 wait.for=stream error.type=canceled Error(context canceled)",
		},
		telemetry.LevelLaunches: {"wait/1 stream in caller cuda.device.index=2 stream.id=3 wait.for=stream error.type=canceled Error(context canceled)"},
		telemetry.LevelOff:      nil,
	} {
		steps, recorder := newSteps(level)
		ctx := traced{}.request(t)
		if end := steps(ctx, copyStep); end != nil {
			end(nil)
		}
		if end := steps(ctx, waitStep); end != nil {
			end(context.Canceled)
		}
		traced{recorder: recorder}.wantSpans(t, want...)
	}
}

// Nor does a wait begin a trace of its own.
func TestStepsThatAreNotSampledCostNothing(t *testing.T) {
	steps, recorder := newSteps(telemetry.LevelOperations)
	none := telemetry.Steps(telemetry.Config{}, 0)
	for name, ctx := range map[string]context.Context{"unsampled": unsampled(t.Context()), "no trace": t.Context()} {
		if n := testing.AllocsPerRun(100, func() {
			if steps(ctx, copyStep) != nil || steps(ctx, waitStep) != nil || none(ctx, waitStep) != nil {
				t.Fatalf("%s: a step is traced", name)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if len(recorder.Started()) != 0 || none(traced{}.request(t), waitStep) != nil {
		t.Errorf("spans %v", recorder.Started())
	}
}
