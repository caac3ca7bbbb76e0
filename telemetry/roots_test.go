package telemetry_test

import (
	"context"
	"math"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// Of samplers that decide by the trace id, as many roots begin as they would take; each is a trace of its
// own, without a parent.
func TestAsManyRootsBeginAsTheSamplerTakes(t *testing.T) {
	const operations = 4000
	for name, c := range map[string]struct {
		sampler sdktrace.Sampler
		ratio   float64
	}{
		"ratio":                  {sdktrace.TraceIDRatioBased(0.25), 0.25},
		"ratio of roots":         {sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.01)), 0.01},
		"ratio of 0":             {sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0)), 0},
		"ratio of 1":             {sdktrace.TraceIDRatioBased(1), 1},
		"never":                  {sdktrace.ParentBased(sdktrace.NeverSample()), 0},
		"always":                 {sdktrace.AlwaysSample(), 1},
		"a sampler of one's own": {ownSampler{sdktrace.TraceIDRatioBased(0.25)}, 0.25},
	} {
		r := newTraced(t, telemetry.Config{}, sdktrace.WithSampler(c.sampler))
		for range operations / 2 {
			must.Get(r.Deallocate(t.Context(), must.Get(r.Allocate(t.Context(), core.Request{Bytes: 64}))(t).ID))(t)
		}
		traces := map[trace.TraceID]bool{}
		for _, s := range r.recorder.Ended() {
			traces[s.SpanContext().TraceID()] = true
			if !s.SpanContext().IsValid() || !s.SpanContext().IsSampled() || s.Parent().IsValid() {
				t.Fatalf("%s: a root %v under %v", name, s.SpanContext(), s.Parent())
			}
		}
		got, want := float64(len(traces)), c.ratio*operations
		if len(traces) != len(r.recorder.Ended()) || math.Abs(got-want) > 7*math.Sqrt(want*(1-c.ratio)) {
			t.Errorf("%s: %v traces of %d spans, want about %v", name, got, len(r.recorder.Ended()), want)
		}
	}
}

// byName takes what has one name, whatever its trace id is.
type byName struct{ sdktrace.Sampler }

func (byName) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.Name == string(telemetry.SpanDealloc) {
		return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
	}
	return sdktrace.SamplingResult{}
}

// flagged takes what its caller has flagged.
type flagged struct{ sdktrace.Sampler }

type flag struct{}

func (flagged) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.ParentContext.Value(flag{}) != nil {
		return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
	}
	return sdktrace.SamplingResult{}
}

// A sampler of one's own may decide by whatever it likes: it is asked about each operation.
func TestASamplerOfOnesOwnIsAskedAboutEachRoot(t *testing.T) {
	for name, c := range map[string]struct {
		sampler sdktrace.Sampler
		ctx     context.Context
	}{
		"by name":            {byName{}, t.Context()},
		"by name, for roots": {sdktrace.ParentBased(byName{}), t.Context()},
		"by the context":     {flagged{}, context.WithValue(t.Context(), flag{}, true)},
	} {
		r := newTraced(t, telemetry.Config{}, sdktrace.WithSampler(c.sampler))
		for range 3000 {
			must.Get(r.Allocate(t.Context(), core.Request{Bytes: 64}))(t)
		}
		must.Get(r.Deallocate(c.ctx, must.Get(r.Allocate(t.Context(), core.Request{Bytes: 64, Tag: "rows"}))(t).ID))(t)
		if got := r.recorder.Ended(); len(got) != 1 || got[0].Name() != "gpumem.dealloc rows" {
			t.Errorf("%s: spans %v", name, render(got))
		}
	}
}

// numbered makes ids that follow each other.
type numbered struct{ last *byte }

func (n numbered) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	*n.last++
	return trace.TraceID{*n.last}, n.NewSpanID(ctx, trace.TraceID{})
}

func (n numbered) NewSpanID(context.Context, trace.TraceID) trace.SpanID {
	return trace.SpanID{*n.last}
}

func TestAProvidersOwnIDsAreThoseOfRoots(t *testing.T) {
	var last byte
	r := newTraced(t, telemetry.Config{}, sdktrace.WithSampler(sdktrace.TraceIDRatioBased(0.5)), sdktrace.WithIDGenerator(numbered{&last}))
	life(t.Context(), t, r)
	for _, s := range r.recorder.Ended() {
		if id := s.SpanContext().TraceID(); id[0] == 0 || id[0] > last {
			t.Errorf("a root has the trace id %v", id)
		}
	}
	if len(r.recorder.Ended()) == 0 || last != 4 {
		t.Errorf("%d spans, and ids for %d roots", len(r.recorder.Ended()), last)
	}
}

// What is begun within an operation whose root is not sampled is not sampled either, and what fails
// there is told in a trace of that operation.
func TestEachDeclinedRootIsATraceOfItsOwn(t *testing.T) {
	for name, sampler := range map[string]sdktrace.Sampler{
		"known": sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0)), "asked": sdktrace.ParentBased(ownSampler{sdktrace.NeverSample()}),
	} {
		r := newTraced(t, telemetry.Config{}, sdktrace.WithSampler(sampler))
		b := must.Get(r.Allocate(t.Context(), core.Request{Bytes: 64}))(t)
		traces, kept := map[trace.TraceID]bool{}, map[context.Context]trace.SpanContext{}
		for range 3 {
			ticket := must.Get(r.PrepareUse(t.Context(), core.UseRequest{Launch: "k", Uses: uses(core.Write, b)}))(t)
			ctx := ticket.Context(t.Context())
			sc := trace.SpanContextFromContext(ctx)
			if !sc.IsValid() || sc.IsSampled() || !sc.Equal(trace.SpanContextFromContext(ctx)) {
				t.Fatalf("%s: the launch function gets %v, want an unsampled launch", name, sc)
			}
			if trace.SpanFromContext(ctx).TracerProvider() != trace.TracerProvider(r.provider) {
				t.Errorf("%s: the launch function's spans are made by %v", name, trace.SpanFromContext(ctx).TracerProvider())
			}
			traces[sc.TraceID()], kept[ctx] = true, sc
			must.Get(r.Allocate(ctx, core.Request{Bytes: 64}))(t)
			r.fake.FailNext("Allocate", outOfBudget())
			if _, err := r.Allocate(ctx, core.Request{Bytes: 64}); err == nil {
				t.Fatal("not refused")
			}
			ended := r.recorder.Ended()
			if s := ended[len(ended)-1]; len(ended) != len(traces) || s.SpanContext().TraceID() != sc.TraceID() || s.Parent().SpanID() != sc.SpanID() {
				t.Errorf("%s: a refusal within is told by %v", name, render(ended))
			}
			must.Do(t, r.FinishUse(t.Context(), ticket))
		}
		for ctx, sc := range kept {
			if !sc.Equal(trace.SpanContextFromContext(ctx)) {
				t.Errorf("%s: a context that was kept has become another", name)
			}
		}
		if len(traces) != 3 {
			t.Errorf("%s: three launches are in %d traces", name, len(traces))
		}
	}
}

// uncomparableContext is of a type of which two cannot be compared.
type uncomparableContext struct {
	context.Context
	_ []int
}

func TestCallersOfAllContextsAreToldTheirOwn(t *testing.T) {
	r := newTraced(t, telemetry.Config{}, sdktrace.WithSampler(sdktrace.NeverSample()))
	b := must.Get(r.Allocate(t.Context(), core.Request{Bytes: 64}))(t)
	for i := range 6 {
		ctx := context.Context(uncomparableContext{Context: context.WithValue(t.Context(), flag{}, i)})
		if i%2 == 0 {
			ctx = context.WithValue(t.Context(), flag{}, i)
		}
		ticket := must.Get(r.PrepareUse(ctx, core.UseRequest{Uses: uses(core.Write, b)}))(t)
		if got := ticket.Context(ctx).Value(flag{}); got != i {
			t.Errorf("launch %d gets the context of launch %v", i, got)
		}
		must.Do(t, r.AbortUse(ctx, ticket))
	}
}
