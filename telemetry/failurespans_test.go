package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// headSampled is how a service samples: by its root, and by what its caller says.
var headSampled = sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0)))

func outOfBudget() *core.OutOfBudgetError {
	return &core.OutOfBudgetError{Requested: 300, Remaining: 20, Limit: 200, Tag: "sort",
		Holders: []core.Holder{{Tag: "join", State: core.Live, Bytes: 180, Blocks: 2}}}
}

func TestARefusalInARequestThatIsNotSampledIsOneExportedSpan(t *testing.T) {
	for name, parent := range map[string]func(context.Context) context.Context{"local": unsampled, "remote": func(ctx context.Context) context.Context {
		return trace.ContextWithRemoteSpanContext(ctx, trace.SpanContextFromContext(unsampled(ctx)))
	}} {
		r := newTraced(t, telemetry.Config{}, headSampled)
		ctx := parent(t.Context())
		block := must.Get(r.Allocate(ctx, core.Request{Bytes: 64, Stream: 1}))(t)
		if span, extent := r.TraceOf(ctx); len(r.recorder.Started()) != 0 || !span.IsZero() || extent != "" {
			t.Fatalf("%s: an allocation that was granted left %v, %v", name, r.recorder.Started(), span)
		}
		refusal := fmt.Errorf("wrapped: %w", outOfBudget())
		r.fake.FailNext("Allocate", refusal)
		if _, err := r.Allocate(ctx, core.Request{Bytes: 512, Requested: 300, Stream: 1, Tag: "sort"}); !errors.Is(err, refusal) {
			t.Fatalf("the scripted refusal was lost: %v", err)
		}
		r.wantSpans(t, `refusal/1 sort in caller cuda.device.index=0 tag=sort block.requested=300 budget.limit=200 budget.remaining=20 `+
			`budget.holders=[join live 180 B in 2 blocks] trace=event error.type=exceeds_budget Error(`+refusal.Error()+`)`)
		s, request := r.recorder.Ended()[0], trace.SpanContextFromContext(ctx)
		if s.SpanContext().TraceID() != request.TraceID() || s.Parent().SpanID() != request.SpanID() || !s.SpanContext().IsSampled() {
			t.Errorf("%s: the span %v is under %v", name, s.SpanContext(), s.Parent())
		}
		if span, extent := r.TraceOf(ctx); trace.SpanID(span.SpanID) != s.SpanContext().SpanID() || extent != names.TraceEvent {
			t.Errorf("%s: the log would name %v (%q)", name, span, extent)
		}
		r.fake.FailNext("Deallocate", core.ErrClosed)
		if _, err := r.Deallocate(ctx, block.ID); err == nil {
			t.Error("not refused")
		}
		if s := r.recorder.Ended()[1]; s.Name() != "gpumem.failure deallocate" || s.Status().Code != codes.Error || attributeOf(s, telemetry.AttrOperation).AsString() != "deallocate" ||
			attributeOf(s, telemetry.AttrErrorType).AsString() != "closed" {
			t.Errorf("%s: a call that failed is %v", name, render(r.recorder.Ended()[1:]))
		}
	}
}

type uncomparable struct{ values any }

func (uncomparable) Error() string { return "refused" }

// A resource below may fail with errors of any type.
func TestAnErrorThatCannotBeComparedIsTracedAsAnyOther(t *testing.T) {
	r := newTraced(t, telemetry.Config{}, headSampled)
	ctx := unsampled(t.Context())
	for range 2 {
		r.fake.FailNext("Allocate", uncomparable{[]int{1}})
		if _, err := r.Allocate(ctx, core.Request{Bytes: 64, Stream: 1}); err == nil {
			t.Error("not refused")
		}
	}
	spans := r.recorder.Ended()
	if len(spans) != 2 {
		t.Fatalf("spans %v", render(spans))
	}
	if span, extent := r.TraceOf(ctx); trace.SpanID(span.SpanID) != spans[1].SpanContext().SpanID() || extent != names.TraceEvent {
		t.Errorf("the log would name %v (%q)", span, extent)
	}
}

// A text that is not UTF-8 would lose the whole batch that its span travels in.
func TestTheStatusOfASpanCanBeExportedWhateverTheTags(t *testing.T) {
	refusal := outOfBudget()
	refusal.Holders[0].Tag = "join\xff"
	r := newTraced(t, telemetry.Config{}, headSampled)
	for _, ctx := range []context.Context{unsampled(t.Context()), r.request(t)} {
		r.fake.FailNext("Allocate", refusal)
		_, _ = r.Allocate(ctx, core.Request{Bytes: 512, Stream: 1, Tag: "sort"})
	}
	findings := telemetry.NewFindings(telemetry.FindingsConfig{TracerProvider: r.provider})
	span := core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{2}}
	findings.Report(core.Finding{Kind: names.FindingLeak, Text: refusal.Error(), Suspects: []core.UseRecord{{Span: span}}})
	steps := telemetry.Steps(telemetry.Config{TracerProvider: r.provider}, 0)
	steps(r.request(t), waitStep)(refusal)
	probe := must.Get(telemetry.NewProbe(r.fake, "budget", r.provider))(t)
	probed := must.Get(telemetry.NewResource(probe, telemetry.Config{TracerProvider: r.provider}))(t)
	r.fake.FailNext("Allocate", refusal)
	_, _ = probed.Allocate(r.request(t), core.Request{Bytes: 512, Stream: 1, Tag: "sort"})
	names := map[string]bool{}
	for _, s := range r.recorder.Ended() {
		names[s.Name()] = true
		if text := s.Status().Description; !utf8.ValidString(text) || !strings.Contains(text, "join\uFFFD") {
			t.Errorf("%s: %q", s.Name(), text)
		}
	}
	if len(names) != 5 { // refusal, alloc, finding, wait, layer
		t.Errorf("spans %v", names)
	}
}

// What was told to the log is not told again when the call returns, and one error
// of two requests is told in both.
func TestARefusalThatWasLoggedIsTracedOnce(t *testing.T) {
	r := newTraced(t, telemetry.Config{}, headSampled)
	ctx, refusal := unsampled(t.Context()), outOfBudget()
	span, alone := r.Refused(ctx, oplog.Event{Op: oplog.OpRefusal, Tag: "sort", Requested: 300, Err: refusal})
	r.fake.refusal = fmt.Errorf("after the relief: %w", refusal)
	if _, err := r.Reserve(ctx, 300, "sort"); err == nil || !alone || len(r.recorder.Ended()) != 1 {
		t.Errorf("%v, alone %v, spans %v", err, alone, render(r.recorder.Ended()))
	}
	if trace.SpanID(span.SpanID) != r.recorder.Ended()[0].SpanContext().SpanID() {
		t.Errorf("the log got %v", span)
	}
	other := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{7}, SpanID: trace.SpanID{7}}))
	if again, _ := r.Refused(other, oplog.Event{Err: refusal}); again == span || len(r.recorder.Ended()) != 2 {
		t.Errorf("the other request's span is %v", again)
	}
}

// A sampler that does not follow its parent has the last word, no request has no
// trace, and the level off makes no spans at all.
func TestNothingIsNamedThatIsNotExported(t *testing.T) {
	never := sdktrace.WithSampler(sdktrace.NeverSample())
	for name, c := range map[string]struct {
		cfg    telemetry.Config
		option sdktrace.TracerProviderOption
		ctx    context.Context
	}{
		"sampled by itself": {telemetry.Config{}, never, unsampled(t.Context())},
		"no request":        {telemetry.Config{}, headSampled, t.Context()},
		"level off":         {telemetry.Config{Level: telemetry.LevelOff}, headSampled, unsampled(t.Context())},
	} {
		r := newTraced(t, c.cfg, c.option)
		r.fake.FailNext("Allocate", outOfBudget())
		if _, err := r.Allocate(c.ctx, core.Request{Bytes: 300}); err == nil {
			t.Error("not refused")
		}
		span, extent := r.TraceOf(c.ctx)
		if refused, _ := r.Refused(c.ctx, oplog.Event{Err: outOfBudget()}); len(r.recorder.Started()) != 0 || !refused.IsZero() || !span.IsZero() || extent != "" {
			t.Errorf("%s: spans %v, the log would name %v", name, r.recorder.Started(), span)
		}
		if x := refusalExemplar(t, r, "exceeds_budget"); x != nil {
			t.Errorf("%s: there is an exemplar: %v", name, x)
		}
	}
	untraced := must.Get(telemetry.NewResource(newFencing(), telemetry.Config{}))(t)
	if span, extent := untraced.TraceOf(unsampled(t.Context())); !span.IsZero() || extent != "" {
		t.Errorf("without a provider: %v", span)
	}
}

// However many requests are refused, a second has at most so many spans; the rest
// is counted.
func TestSpansOfRefusalsAreBounded(t *testing.T) {
	r := newTraced(t, telemetry.Config{}, headSampled)
	const workers, each = 8, 200
	var all sync.WaitGroup
	begin := time.Now()
	for w := range workers {
		all.Go(func() {
			for i := range each {
				sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{byte(w + 1), byte(i + 1)}, SpanID: trace.SpanID{1}})
				r.Refused(trace.ContextWithSpanContext(t.Context(), sc), oplog.Event{Err: outOfBudget()})
			}
		})
	}
	all.Wait()
	wantBounded(t, r, begin, len(r.recorder.Ended()), workers*each)
}

// wantBounded checks how many spans were made of events since begin, and that the others
// were counted.
func wantBounded(t *testing.T, r traced, begin time.Time, made, events int) {
	t.Helper()
	seconds := int(time.Since(begin)/time.Second) + 2 // those that it touched
	if made < telemetry.MaxEventSpans || made > seconds*telemetry.MaxEventSpans {
		t.Errorf("%d spans in %d seconds", made, seconds)
	}
	for _, m := range gather(t, r)["gpumem_event_spans_dropped_total"].GetMetric() {
		if n := int(m.GetCounter().GetValue()); n+made != events {
			t.Errorf("%d made and %d dropped of %d", made, n, events)
		}
	}
}

func TestExemplarsOfRefusalsNameExportedSpans(t *testing.T) {
	r := newTraced(t, telemetry.Config{}, headSampled)
	if x := refusalExemplar(t, r, "exceeds_budget"); x != nil {
		t.Errorf("before any refusal: %v", x)
	}
	for _, ctx := range []context.Context{unsampled(t.Context()), r.request(t)} {
		for _, op := range []string{"Allocate", "Reserve"} {
			r.fake.refusal = outOfBudget()
			if op == "Allocate" {
				r.fake.FailNext(op, r.fake.refusal)
				_, _ = r.Allocate(ctx, core.Request{Bytes: 300})
			} else {
				_, _ = r.Reserve(ctx, 300, "sort")
			}
			spans := r.recorder.Ended()
			want, x := spans[len(spans)-1].SpanContext(), refusalExemplar(t, r, "exceeds_budget")
			if labels := labelsOf(x); labels["trace_id"] != want.TraceID().String() || labels["span_id"] != want.SpanID().String() || x.GetValue() != 1 {
				t.Errorf("%s: the exemplar %v is not %v", op, x, want)
			}
		}
	}
	if n := len(r.recorder.Ended()); n != 4 {
		t.Errorf("%d spans", n)
	}
	for _, m := range gather(t, r)["gpumem_operations_total"].GetMetric() {
		if has, failed := m.GetCounter().GetExemplar() != nil, labelOf(m, "result") != "ok"; has != failed {
			t.Errorf("%v", m)
		}
	}
}

func gather(t *testing.T, r traced) map[string]*dto.MetricFamily {
	t.Helper()
	collector := must.Get(metrics.NewCollector(metrics.Source{Device: r.Resource, Operations: r.Operations}))(t)
	registry := prometheus.NewPedanticRegistry()
	must.Do(t, registry.Register(collector))
	families := map[string]*dto.MetricFamily{}
	for _, f := range must.Get(registry.Gather())(t) {
		families[f.GetName()] = f
	}
	return families
}

func refusalExemplar(t *testing.T, r traced, reason string) *dto.Exemplar {
	t.Helper()
	for _, m := range gather(t, r)["gpumem_refusals_total"].GetMetric() {
		if labelOf(m, "reason") == reason {
			return m.GetCounter().GetExemplar()
		}
	}
	t.Fatalf("no series of %s", reason)
	return nil
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func labelsOf(x *dto.Exemplar) map[string]string {
	labels := map[string]string{}
	for _, l := range x.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}
