package telemetry_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// fencing is a fake that reports a wait for the last use of a block whenever
// it was on another stream, as a tracking backend does.
type fencing struct {
	*coretest.Fake

	mu   sync.Mutex
	last map[core.Generation]core.Waited
	// refusal, if not nil, is what a reservation is refused with.
	refusal error
}

func (f *fencing) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	if f.refusal != nil {
		return core.Claim{}, f.refusal
	}
	return f.Fake.Reserve(ctx, bytes, tag)
}

func newFencing() *fencing {
	return &fencing{Fake: coretest.NewFake(0), last: map[core.Generation]core.Waited{}}
}

func (f *fencing) note(g core.Generation, stream core.StreamID, span core.SpanRef) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last[g] = core.Waited{Stream: stream, Span: span}
}

func (f *fencing) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	b, err := f.Fake.Allocate(ctx, r)
	if err == nil {
		f.note(b.ID.Generation, r.Stream, r.Span)
	}
	return b, err
}

func (f *fencing) PrepareUse(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
	t, err := f.Fake.PrepareUse(ctx, r)
	if err != nil {
		return t, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	in := t.Intent()
	for i := range in.Uses {
		w := f.last[in.Uses[i].Block.Generation]
		if w.Stream == in.Stream {
			continue
		}
		w.Use = i
		in.Uses[i].Waits, in.Uses[i].Elided = 1, 2
		in.Waited = append(in.Waited, w)
		in.CrossStream = true
	}
	return t, nil
}

func (f *fencing) FinishUse(ctx context.Context, t core.Ticket) error {
	if in := t.Intent(); t.IsOpen() {
		for _, u := range in.Uses {
			f.note(u.Block.Generation, in.Stream, u.Span)
		}
	}
	return f.Fake.FinishUse(ctx, t)
}

// traced is a resource whose spans are recorded.
type traced struct {
	*telemetry.Resource
	fake     *fencing
	recorder *tracetest.SpanRecorder
	provider *sdktrace.TracerProvider
}

func newTraced(t testing.TB, cfg telemetry.Config, options ...sdktrace.TracerProviderOption) traced {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(append(options, sdktrace.WithSpanProcessor(recorder))...)
	fake := newFencing()
	cfg.TracerProvider = provider
	r := must.Get(telemetry.NewResource(fake, cfg))(t)
	return traced{Resource: r, fake: fake, recorder: recorder, provider: provider}
}

// wantSpans compares the ended spans with want, one rendered span a line in
// the order of their ends, and fails if any is still open.
func (r traced) wantSpans(t *testing.T, want ...string) {
	t.Helper()
	ended := r.recorder.Ended()
	if started := len(r.recorder.Started()); started != len(ended) {
		t.Errorf("%d spans started, %d ended", started, len(ended))
	}
	got := render(ended)
	if !slices.Equal(got, want) {
		t.Errorf("spans:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// numbering numbers what differs between runs in the order of its appearance:
// spans of one operation, generations and launches.
type numbering struct {
	spans       map[trace.SpanID]string
	generations map[int64]string
}

func render(spans []sdktrace.ReadOnlySpan) []string {
	n := numbering{spans: map[trace.SpanID]string{}, generations: map[int64]string{}}
	seen := map[string]int{}
	for _, s := range spans {
		operation := operationOf(s)
		seen[operation]++
		n.spans[s.SpanContext().SpanID()] = fmt.Sprintf("%s/%d", strings.TrimPrefix(operation, "gpumem."), seen[operation])
	}
	var lines []string
	for _, s := range spans {
		lines = append(lines, n.line(s))
	}
	return lines
}

func (n numbering) line(s sdktrace.ReadOnlySpan) string {
	line := n.spans[s.SpanContext().SpanID()] + strings.TrimPrefix(s.Name(), operationOf(s))
	if s.Parent().IsValid() {
		line += " in " + n.reference(s.Parent().SpanID())
	}
	if s.SpanKind() != trace.SpanKindInternal {
		line += " kind=" + s.SpanKind().String()
	}
	if scope := s.InstrumentationScope(); scope.Name != telemetry.ScopeName || scope.Version == "" || !strings.HasPrefix(scope.SchemaURL, "https://opentelemetry.io/schemas/") {
		line += " scope=" + s.InstrumentationScope().Name
	}
	for _, kv := range s.Attributes() {
		if kv.Key != telemetry.AttrSpanOperation {
			line += " " + n.attribute(kv)
		}
	}
	for _, l := range s.Links() {
		line += " -> " + n.reference(l.SpanContext.SpanID())
		for _, kv := range l.Attributes {
			line += "{" + n.attribute(kv) + "}"
		}
	}
	if s.Status().Code != codes.Unset {
		line += fmt.Sprintf(" %s(%s)", s.Status().Code, s.Status().Description)
	}
	return line
}

func (n numbering) reference(id trace.SpanID) string {
	if name, ok := n.spans[id]; ok {
		return name
	}
	return "caller"
}

func (n numbering) attribute(kv attribute.KeyValue) string {
	key := strings.TrimPrefix(string(kv.Key), "gpumem.")
	switch kv.Key {
	case telemetry.AttrGeneration:
		return key + "=" + n.generation(kv.Value.AsInt64())
	case telemetry.AttrLaunchID:
		return key + "=n"
	case telemetry.AttrGenerations:
		return fmt.Sprintf("%s=%d", key, len(kv.Value.AsInt64Slice()))
	}
	return fmt.Sprintf("%s=%v", key, kv.Value.AsInterface())
}

func (n numbering) generation(g int64) string {
	if _, ok := n.generations[g]; !ok {
		n.generations[g] = fmt.Sprintf("#%d", len(n.generations)+1)
	}
	return n.generations[g]
}

// request starts the span of a caller and returns its context.
func (r traced) request(t *testing.T) context.Context {
	t.Helper()
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	return trace.ContextWithSpanContext(t.Context(), sc)
}

// unsampled is the context of a caller whose trace is not sampled.
func unsampled(ctx context.Context) context.Context {
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	return trace.ContextWithSpanContext(ctx, sc)
}

func uses(access core.Access, blocks ...core.Block) []core.Use {
	var all []core.Use
	for _, b := range blocks {
		all = append(all, core.Use{Block: b.ID, Access: access})
	}
	return all
}

// operationOf is the operation of a span of this package, the name of any other.
func operationOf(s sdktrace.ReadOnlySpan) string {
	return cmp.Or(attributeOf(s, telemetry.AttrSpanOperation).AsString(), s.Name())
}

func attributeOf(s sdktrace.ReadOnlySpan, key attribute.Key) attribute.Value {
	for _, kv := range s.Attributes() {
		if kv.Key == key {
			return kv.Value
		}
	}
	return attribute.Value{}
}
