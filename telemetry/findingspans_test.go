package telemetry_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// suspectOf is a record of a launch whose span is numbered.
func suspectOf(span byte, launch string) core.UseRecord {
	u := core.UseRecord{LaunchID: uint64(span), Launch: launch, Stream: 3}
	if span != 0 {
		u.Span = core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{span}}
	}
	return u
}

// spansOf are the spans that a finding makes.
func spansOf(t *testing.T, f core.Finding, options ...sdktrace.TracerProviderOption) []sdktrace.ReadOnlySpan {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(append(options, sdktrace.WithSpanProcessor(recorder))...)
	telemetry.NewFindings(telemetry.FindingsConfig{TracerProvider: provider}).Report(f)
	if len(recorder.Started()) != len(recorder.Ended()) {
		t.Errorf("%d spans started, %d ended", len(recorder.Started()), len(recorder.Ended()))
	}
	return recorder.Ended()
}

func TestAFindingIsASpanUnderItsSuspects(t *testing.T) {
	at := time.Date(2026, 11, 22, 3, 45, 0, 0, time.UTC)
	f := core.Finding{Kind: names.FindingUseAfterFreeWrite, Source: "debugguard", Time: at, Text: "it was written",
		Victim: core.Block{ID: core.BlockID{Generation: 7, Ordinal: 2}, Tag: "sort.keys", Requested: 100},
		Offset: -4, BadBytes: 3, Expected: 0xff, Seen: 0x0a, Err: &core.UseAfterFreeError{Op: "guard check"},
		Suspects: []core.UseRecord{suspectOf(1, "radix"), suspectOf(1, "radix"), suspectOf(2, "join"), suspectOf(4, "fourth")},
		Uses:     []core.UseRecord{suspectOf(5, "used")}}
	spans := spansOf(t, f)
	if len(spans) != 2 {
		t.Fatalf("%d spans, want one for each distinct launch of the first three", len(spans))
	}
	for i, launch := range []string{"radix", "join"} {
		s := spans[i]
		if s.Name() != "gpumem.finding uaf-write" || s.Parent().SpanID() != (trace.SpanID{byte(i + 1)}) || s.SpanContext().TraceID() != (trace.TraceID{1}) {
			t.Errorf("%s under %v of %v", s.Name(), s.Parent().SpanID(), s.SpanContext().TraceID())
		}
		if !s.StartTime().Equal(at) || !s.EndTime().Equal(at) || s.Status().Code != codes.Error || s.Status().Description != f.Text {
			t.Errorf("from %v to %v, %+v", s.StartTime(), s.EndTime(), s.Status())
		}
		for key, want := range map[attribute.Key]any{
			telemetry.AttrFindingKind: "uaf-write", telemetry.AttrFindingSource: "debugguard", telemetry.AttrFindingSuspects: int64(4),
			telemetry.AttrDevice: int64(2), telemetry.AttrGeneration: int64(7), telemetry.AttrTag: "sort.keys", telemetry.AttrRequested: int64(100),
			telemetry.AttrFindingOffset: int64(-4), telemetry.AttrFindingBytes: int64(3), telemetry.AttrFindingExpected: "0xff", telemetry.AttrFindingSeen: "0x0a",
			telemetry.AttrErrorType: "use_after_free", telemetry.AttrLaunchID: int64(i + 1), telemetry.AttrLaunchName: launch, telemetry.AttrStream: int64(3),
		} {
			if got := attributeOf(s, key).AsInterface(); got != want {
				t.Errorf("span %d: %s is %v, want %v", i, key, got, want)
			}
		}
	}
}

func TestOnlyTheFirstSuspectsGetASpan(t *testing.T) {
	f := core.Finding{Kind: names.FindingUnderflow, Suspects: []core.UseRecord{suspectOf(0, "unsampled"), suspectOf(1, "a"), suspectOf(2, "b"), suspectOf(3, "c")},
		Uses: []core.UseRecord{suspectOf(4, "used")}}
	if spans := spansOf(t, f); len(spans) != 2 {
		t.Errorf("%d spans, want those of the two of the first three that were traced", len(spans))
	}
	f.Suspects = nil
	f.Uses = []core.UseRecord{suspectOf(0, "unsampled"), suspectOf(4, "used"), suspectOf(5, "older")}
	if spans := spansOf(t, f); len(spans) != 1 || spans[0].Parent().SpanID() != (trace.SpanID{4}) {
		t.Errorf("%d spans without a suspect, want one under the newest traced use", len(spans))
	}
	f.Uses = nil
	if spans := spansOf(t, f); len(spans) != 0 {
		t.Errorf("%d spans of a finding that nothing traced is part of", len(spans))
	}
	f.Suspects = []core.UseRecord{suspectOf(1, "a")}
	if spans := spansOf(t, f, sdktrace.WithSampler(sdktrace.NeverSample())); len(spans) != 0 {
		t.Errorf("%d spans against the sampler", len(spans))
	}
}

func TestTheSpanOfARefusedCallHasTheFindingAsAnEvent(t *testing.T) {
	findings := telemetry.NewFindings(telemetry.FindingsConfig{})
	r := newTraced(t, telemetry.Config{Findings: findings})
	b := must.Get(r.Allocate(unsampled(t.Context()), core.Request{Bytes: 64, Stream: 1, Tag: "rows"}))(t)
	refusal := &core.UseAfterFreeError{Op: "Deallocate", Generation: b.ID.Generation}
	for range 3 {
		findings.Report(core.Finding{Kind: names.FindingDoubleFree, Text: "another", Err: &core.UseAfterFreeError{Op: "Deallocate"}})
	}
	findings.Report(core.Finding{Kind: names.FindingStaleHandle, Source: "debugguard", Victim: b, Text: "a stale one", Err: refusal})
	findings.Report(core.Finding{Kind: names.FindingLeak})
	r.fake.FailNext("Deallocate", fmt.Errorf("wrapped: %w", refusal))
	if _, err := r.Deallocate(r.request(t), b.ID); !errors.Is(err, refusal) {
		t.Fatalf("the scripted refusal was lost: %v", err)
	}
	r.fake.FailNext("Deallocate", core.ErrClosed)
	if _, err := r.Deallocate(r.request(t), b.ID); !errors.Is(err, core.ErrClosed) {
		t.Fatalf("the scripted refusal was lost: %v", err)
	}
	spans := r.recorder.Ended()
	if len(spans) != 2 || len(spans[0].Events()) != 1 || len(spans[1].Events()) != 0 {
		t.Fatalf("spans: %q with %v", render(spans), spans[0].Events())
	}
	event := spans[0].Events()[0]
	attributes := attribute.NewSet(event.Attributes...)
	kind, _ := attributes.Value(telemetry.AttrFindingKind)
	tag, _ := attributes.Value(telemetry.AttrTag)
	what, _ := attributes.Value(telemetry.AttrFindingText)
	if event.Name != "gpumem.finding" || kind.AsString() != "stale-handle" || tag.AsString() != "rows" || what.AsString() != "a stale one" {
		t.Errorf("the event %s has %v", event.Name, event.Attributes)
	}
	if spans[0].Status().Code != codes.Error || attributeOf(spans[0], telemetry.AttrErrorType).AsString() != "use_after_free" {
		t.Errorf("status %+v", spans[0].Status())
	}
}

// The newest finding is looked at first, however often the memory of them has
// come round.
func TestAboutFindsTheLastFewOnly(t *testing.T) {
	for _, keep := range []int{1, 5, 16, 17, 100} {
		c := telemetry.NewFindings(telemetry.FindingsConfig{Keep: keep})
		var errs []error
		for i := range 40 {
			errs = append(errs, fmt.Errorf("error %d", i))
			c.Report(core.Finding{Kind: "k", Text: errs[i].Error(), Err: errs[i]})
			for j, err := range errs {
				f, ok := c.About(err)
				if want := i-j < min(keep, 16); ok != want || ok && f.Text != err.Error() {
					t.Fatalf("keep %d: after %d findings About(%d) is %q, %v, want %v", keep, i+1, j, f.Text, ok, want)
				}
			}
		}
		if _, ok := c.About(nil); ok {
			t.Error("no error is about a finding")
		}
	}
}

// callerOf is a record of a launch that was not traced, of a request that is or is not.
func callerOf(request byte, launch string, sampled bool) core.UseRecord {
	u := suspectOf(0, launch)
	u.Caller = core.SpanContext{SpanRef: core.SpanRef{TraceID: [16]byte{request}, SpanID: [8]byte{request}}, Sampled: sampled}
	return u
}

// Launches that were traced have a span each; of the others the likeliest request has
// one, whether or not it is sampled; the victim's own only if no launch is known.
func TestWhereAFindingIsToldWhenLaunchesAreNotTraced(t *testing.T) {
	origin := core.SpanContext{SpanRef: core.SpanRef{TraceID: [16]byte{9}, SpanID: [8]byte{9}}}
	for name, c := range map[string]struct {
		f      core.Finding
		want   []byte // the parents' spans
		extent []string
		first  string
	}{
		"one that is not sampled":  {core.Finding{Suspects: []core.UseRecord{callerOf(2, "a", false)}, Origin: origin}, []byte{2}, []string{"event"}, "event"},
		"one of a sampled request": {core.Finding{Suspects: []core.UseRecord{callerOf(2, "a", true)}, Origin: origin}, []byte{2}, []string{"full"}, "full"},
		"several requests":         {core.Finding{Suspects: []core.UseRecord{callerOf(2, "a", false), callerOf(3, "b", false)}}, []byte{2}, []string{"event"}, "event"},
		"behind an unknown one":    {core.Finding{Suspects: []core.UseRecord{suspectOf(0, "a"), callerOf(3, "b", false)}, Origin: origin}, []byte{3}, []string{"event"}, "event"},
		"beside traced ones":       {core.Finding{Suspects: []core.UseRecord{callerOf(2, "a", false), suspectOf(3, "b"), suspectOf(4, "c")}}, []byte{2, 3, 4}, []string{"event", "", ""}, "event"},
		"none that is known":       {core.Finding{Suspects: []core.UseRecord{suspectOf(0, "a")}, Origin: origin}, []byte{9}, []string{"event"}, "event"},
		"a traced use":             {core.Finding{Uses: []core.UseRecord{suspectOf(5, "a")}, Origin: origin}, []byte{5}, []string{""}, "full"},
		"nothing but the victim":   {core.Finding{Origin: origin}, []byte{9}, []string{"event"}, "event"},
		"nothing":                  {core.Finding{Suspects: []core.UseRecord{suspectOf(0, "a")}}, nil, nil, ""},
	} {
		recorder := tracetest.NewSpanRecorder()
		findings := telemetry.NewFindings(telemetry.FindingsConfig{TracerProvider: sdktrace.NewTracerProvider(headSampled, sdktrace.WithSpanProcessor(recorder))})
		findings.Report(c.f)
		spans := recorder.Ended()
		if len(spans) != len(c.want) {
			t.Errorf("%s: %d spans", name, len(spans))
			continue
		}
		for i, s := range spans {
			if s.Parent().SpanID() != (trace.SpanID{c.want[i]}) || attributeOf(s, telemetry.AttrTrace).AsString() != c.extent[i] {
				t.Errorf("%s: %v under %v", name, s.Attributes(), s.Parent())
			}
		}
		if f := findings.Recent()[0]; f.Span.Extent(f.Alone) != c.first || len(spans) > 0 && trace.SpanID(f.Span.SpanID) != spans[0].SpanContext().SpanID() {
			t.Errorf("%s: the finding names %x (%s)", name, f.Span, f.Span.Extent(f.Alone))
		}
	}
}

// Findings and calls that fail share what a second may have, and what a sampler that
// does not follow its parent refuses is not named.
func TestEventSpansOfFindingsAreBounded(t *testing.T) {
	findings := telemetry.NewFindings(telemetry.FindingsConfig{Keep: 1000, TracerProvider: sdktrace.NewTracerProvider(headSampled)})
	r := newTraced(t, telemetry.Config{Findings: findings}, headSampled)
	const reports = 500
	begin := time.Now()
	for range reports {
		findings.Report(core.Finding{Kind: names.FindingLeak, Suspects: []core.UseRecord{callerOf(2, "a", false)}})
	}
	told := 0
	for _, f := range findings.Recent() {
		if f.Span.Extent(f.Alone) == names.TraceEvent {
			told++
		}
	}
	wantBounded(t, r, begin, told, reports)
	never := telemetry.NewFindings(telemetry.FindingsConfig{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))})
	never.Report(core.Finding{Suspects: []core.UseRecord{callerOf(2, "a", false)}})
	if f := never.Recent()[0]; !f.Span.IsZero() || f.Alone || f.Span.Extent(f.Alone) != "" {
		t.Errorf("against the sampler it names %x (%s)", f.Span, f.Span.Extent(f.Alone))
	}
}
