package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

func leak(tag core.Tag, bytes uint64) core.Finding {
	return core.Finding{Kind: names.FindingLeak, Source: "runtime", Text: fmt.Sprint(bytes),
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
	for _, finding := range []core.Finding{leak("b", 1), leak("a", 1), leak("a", 1), {Kind: names.FindingDoubleFree}} {
		f.Report(finding)
	}
	counts := f.Counts()
	if want := map[core.FindingKind]uint64{names.FindingLeak: 3, names.FindingDoubleFree: 1}; !maps.Equal(counts, want) {
		t.Errorf("counts %v, want %v", counts, want)
	}
	counts[names.FindingLeak] = 99
	if f.Counts()[names.FindingLeak] != 3 {
		t.Error("the caller's map is the collection's own")
	}
	want := []metrics.TagFindings{{Kind: names.FindingDoubleFree, Tag: names.Untagged, Count: 1}, {Kind: names.FindingLeak, Tag: "a", Count: 2}, {Kind: names.FindingLeak, Tag: "b", Count: 1}}
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
	f.Report(core.Finding{Kind: names.FindingStickyError})
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
		return core.Finding{Kind: names.FindingDoubleFree, Source: source, CallStack: at, Text: "freed again"}
	}
	for range 3 {
		c.Report(twice("slice", 1, 9))
		c.Report(twice("slice", 2, 9))
		c.Report(twice("slice")) // from nobody knows where
		c.Report(twice("debugguard", 1, 9))
	}
	if all, harmful := c.Counts()[names.FindingDoubleFree], c.Harmful()[names.FindingDoubleFree]; all != 12 || harmful != 3 || c.Total() != 12 {
		t.Errorf("%d of which %d did harm, want 12 and 3", all, harmful)
	}
	if warned, kept := strings.Count(log.String(), "level=WARN"), len(c.Recent()); warned != 3 || strings.Count(log.String(), "level=ERROR") != 3 || kept != 6 {
		t.Errorf("kept %d, logged\n%s", kept, log.String())
	}
	for place := range uintptr(5000) { // however many there are, what is noted of them is bounded
		c.Report(twice("slice", 100+place))
	}
	if warned := strings.Count(log.String(), "level=WARN"); warned != 1024 || c.Harmful()[names.FindingDoubleFree] != 3 {
		t.Errorf("%d places are told of, want 1024", warned)
	}
}

// logged is a finding as a line of JSON.
func logged(t *testing.T, f core.Finding) map[string]any {
	t.Helper()
	var text bytes.Buffer
	telemetry.NewFindings(telemetry.FindingsConfig{Logger: slog.New(slog.NewJSONHandler(&text, nil))}).Report(f)
	line := map[string]any{}
	if err := json.Unmarshal(text.Bytes(), &line); err != nil || bytes.Count(text.Bytes(), []byte("\n")) != 1 {
		t.Fatalf("not one line (%v):\n%s", err, text.String())
	}
	return line
}

func overrun(suspects int) core.Finding {
	f := core.Finding{
		Kind: names.FindingOutOfBoundsWrite, Source: "debugguard", Text: "bytes behind the block were overwritten",
		Victim: core.Block{ID: core.BlockID{Ptr: 0x500, Generation: 7, AllocStream: 2, Ordinal: 1}, Requested: 1000, Tag: "rows"},
		Offset: 1000, BadBytes: 16, AllocStack: core.CaptureStack(0), Incident: "/var/incidents/1.json",
	}
	for i := range suspects {
		f.Suspects = append(f.Suspects, core.UseRecord{LaunchID: uint64(i + 10), Launch: fmt.Sprint("scatter", i), Stream: 3, Access: core.Write,
			Span: core.SpanRef{TraceID: [16]byte{0xab}, SpanID: [8]byte{0xcd}}})
	}
	return f
}

func TestOneLogLineSaysAllThatAnOnCallEngineerNeeds(t *testing.T) {
	line := logged(t, overrun(8))
	if msg := line["msg"]; msg != "gpu memory finding: bytes behind the block were overwritten; suspect 1 of 8: scatter0, stream 3, trace ab000000000000000000000000000000" {
		t.Errorf("the message is %q", msg)
	}
	for key, want := range map[string]any{
		"level": "ERROR", "kind": "oob-write", "source": "debugguard", "tag": "rows", "generation": 7., "requested": 1000., "ptr": "0x500", "device": 1., "stream": "2",
		"offset": 1000., "bad_bytes": 16., "suspects": 8., "incident": "/var/incidents/1.json",
	} {
		if line[key] != want {
			t.Errorf("%s is %v, want %v", key, line[key], want)
		}
	}
	if at := fmt.Sprint(line["allocated_at"]); !strings.Contains(at, "telemetry_test.overrun ") || !strings.Contains(at, "findings_test.go:") {
		t.Errorf("allocated at %s", at)
	}
	second, _ := line["suspect_2"].(map[string]any)
	if second["launch"] != "scatter1" || second["id"] != 11. || second["stream"] != "3" || second["access"] != "write" || second[names.TraceIDKey] != "ab000000000000000000000000000000" || second[names.SpanIDKey] != "cd00000000000000" {
		t.Errorf("the second suspect is %v", second)
	}
	var groups []string
	for key := range line {
		if strings.HasPrefix(key, "suspect_") {
			groups = append(groups, key)
		}
	}
	slices.Sort(groups)
	if !slices.Equal(groups, []string{"suspect_1", "suspect_2", "suspect_3"}) {
		t.Errorf("the suspects in the line are %v", groups)
	}
}

func TestOnlyOneSuspectIsCalledTheCulprit(t *testing.T) {
	for _, c := range []struct {
		suspects int
		more     bool
		want     string
	}{{1, false, "; culprit: scatter0, stream 3"}, {1, true, "; suspect 1 of 1 or more: scatter0"}, {2, false, "; suspect 1 of 2: scatter0"}} {
		f := overrun(c.suspects)
		f.MoreSuspects = c.more
		line := logged(t, f)
		if msg := fmt.Sprint(line["msg"]); !strings.Contains(msg, c.want) || strings.Contains(msg, "culprit") != (c.suspects == 1 && !c.more) {
			t.Errorf("%d suspects, more %v: %s", c.suspects, c.more, msg)
		}
	}
	f := overrun(1)
	f.Suspects[0] = core.UseRecord{Launch: "odd, \x1b[31m"}
	if msg := fmt.Sprint(logged(t, f)["msg"]); !strings.HasSuffix(msg, `; culprit: "odd, \x1b[31m", stream default`) {
		t.Errorf("an odd name reads %s", msg)
	}
	if line := logged(t, core.Finding{Kind: names.FindingStickyError, Text: "lost"}); line["msg"] != "gpu memory finding: lost" || len(line) != 5 {
		t.Errorf("a finding of which nothing is known: %v", line)
	}
}
