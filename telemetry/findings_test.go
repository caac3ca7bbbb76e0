package telemetry_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

func leak(tag core.Tag, bytes uint64) core.Finding {
	return core.Finding{Kind: core.FindingLeak, Source: "runtime", Text: fmt.Sprint(bytes),
		Victim: core.Block{ID: core.BlockID{Generation: 7}, Tag: tag, Requested: bytes}}
}

func TestFindingsKeepTheLast(t *testing.T) {
	f := telemetry.NewFindings(telemetry.FindingsConfig{Keep: 3})
	if len(f.Recent()) != 0 || f.Total() != 0 {
		t.Error("a new collection is not empty")
	}
	for i := range uint64(8) {
		f.Report(leak("a", i))
		recent := f.Recent()
		for j, kept := range recent {
			if want := i + 1 - uint64(len(recent)) + uint64(j); kept.Victim.Requested != want {
				t.Errorf("after %d: kept %d at %d, want %d", i, kept.Victim.Requested, j, want)
			}
		}
		if len(recent) != min(int(i)+1, 3) {
			t.Errorf("after %d: kept %d", i, len(recent))
		}
	}
	if f.Total() != 8 {
		t.Errorf("total %d, want 8", f.Total())
	}
}

func TestFindingsCountByKindAndTag(t *testing.T) {
	f := telemetry.NewFindings(telemetry.FindingsConfig{})
	for _, finding := range []core.Finding{leak("b", 1), leak("a", 1), leak("a", 1), {Kind: core.FindingDoubleFree}} {
		f.Report(finding)
	}
	counts := f.Counts()
	if want := map[core.FindingKind]uint64{core.FindingLeak: 3, core.FindingDoubleFree: 1}; !maps.Equal(counts, want) {
		t.Errorf("counts %v, want %v", counts, want)
	}
	counts[core.FindingLeak] = 99
	if f.Counts()[core.FindingLeak] != 3 {
		t.Error("the caller's map is the collection's own")
	}
	want := []metrics.TagFindings{{Kind: core.FindingDoubleFree, Tag: core.Untagged, Count: 1}, {Kind: core.FindingLeak, Tag: "a", Count: 2}, {Kind: core.FindingLeak, Tag: "b", Count: 1}}
	if got := f.CountsByTag(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("by tag %v, want %v", got, want)
	}
}

func TestFindingsAreBounded(t *testing.T) {
	f := telemetry.NewFindings(telemetry.FindingsConfig{})
	for i := range 1000 {
		finding := leak(core.Tag(fmt.Sprint("tag", i)), 1)
		f.Report(finding)
		finding.Kind = core.FindingKind(fmt.Sprint("kind", i))
		f.Report(finding)
	}
	var sum, other uint64
	for _, c := range f.CountsByTag() {
		sum += c.Count
		if c.Tag == metrics.OtherTag {
			other += c.Count
		}
	}
	if sum != 2000 || other != 2*(1000-metrics.MaxTags) {
		t.Errorf("%d counted, %d under other", sum, other)
	}
	if n := len(f.Counts()); n != 65 {
		t.Errorf("%d kinds are told apart, want 64 and other", n)
	}
	if n := len(f.Recent()); n != telemetry.DefaultKeep {
		t.Errorf("%d are kept, want %d", n, telemetry.DefaultKeep)
	}
}

// capture keeps the last record and its trace.
type capture struct {
	slog.Handler
	record slog.Record
	span   trace.SpanContext
}

func (c *capture) Enabled(context.Context, slog.Level) bool { return true }
func (c *capture) Handle(ctx context.Context, r slog.Record) error {
	c.record, c.span = r, trace.SpanContextFromContext(ctx)
	return nil
}

func TestFindingsAreLoggedWithTheirTrace(t *testing.T) {
	handler := &capture{}
	f := telemetry.NewFindings(telemetry.FindingsConfig{Logger: slog.New(handler)})
	finding := leak("a", 5)
	finding.Uses = []core.UseRecord{{}, {Span: core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{2}}}}
	finding.Suspects = []core.UseRecord{{}}
	f.Report(finding)
	if handler.record.Level != slog.LevelError || handler.record.Message != "gpu memory finding: 5; culprit: a launch without a name, stream default" || handler.record.NumAttrs() != 10 {
		t.Errorf("logged %v with %d attributes", handler.record, handler.record.NumAttrs())
	}
	if handler.span.SpanID() != (trace.SpanID{2}) || handler.span.TraceID() != (trace.TraceID{1}) {
		t.Errorf("logged in the context of span %v", handler.span)
	}
	f.Report(core.Finding{Kind: core.FindingStickyError})
	if handler.span.IsValid() || handler.record.NumAttrs() != 2 {
		t.Errorf("a finding without a trace was logged in %v with %d attributes", handler.span, handler.record.NumAttrs())
	}
}

// What harmed nothing is counted every time, apart from what did harm, and kept
// and logged once for each place in the code.
func TestWhatHarmsNothingIsToldOnceForEachPlace(t *testing.T) {
	var log strings.Builder
	c := telemetry.NewFindings(telemetry.FindingsConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	twice := func(source string, at ...uintptr) core.Finding {
		return core.Finding{Kind: core.FindingDoubleFree, Source: source, CallStack: at, Text: "freed again"}
	}
	for range 3 {
		c.Report(twice("slice", 1, 9))
		c.Report(twice("slice", 2, 9))
		c.Report(twice("slice")) // from nobody knows where
		c.Report(twice("debugguard", 1, 9))
	}
	if all, harmful := c.Counts()[core.FindingDoubleFree], c.Harmful()[core.FindingDoubleFree]; all != 12 || harmful != 3 || c.Total() != 12 {
		t.Errorf("%d of which %d did harm, want 12 and 3", all, harmful)
	}
	if warned, kept := strings.Count(log.String(), "level=WARN"), len(c.Recent()); warned != 3 || strings.Count(log.String(), "level=ERROR") != 3 || kept != 6 {
		t.Errorf("kept %d, logged\n%s", kept, log.String())
	}
	for place := range uintptr(5000) { // however many there are, what is noted of them is bounded
		c.Report(twice("slice", 100+place))
	}
	if warned := strings.Count(log.String(), "level=WARN"); warned != 1024 || c.Harmful()[core.FindingDoubleFree] != 3 {
		t.Errorf("%d places are told of, want 1024", warned)
	}
}
