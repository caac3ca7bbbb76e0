package telemetry_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

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
		Kind: core.FindingOutOfBoundsWrite, Source: "debugguard", Text: "bytes behind the block were overwritten",
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
	if at := fmt.Sprint(line["allocated_at"]); !strings.Contains(at, "telemetry_test.overrun ") || !strings.Contains(at, "findinglog_test.go:") {
		t.Errorf("allocated at %s", at)
	}
	second, _ := line["suspect_2"].(map[string]any)
	if second["launch"] != "scatter1" || second["id"] != 11. || second["stream"] != "3" || second["access"] != "write" || second[core.TraceIDKey] != "ab000000000000000000000000000000" || second[core.SpanIDKey] != "cd00000000000000" {
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
	if line := logged(t, core.Finding{Kind: core.FindingStickyError, Text: "lost"}); line["msg"] != "gpu memory finding: lost" || len(line) != 5 {
		t.Errorf("a finding of which nothing is known: %v", line)
	}
}
