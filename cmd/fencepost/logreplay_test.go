package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/replay"
)

// logOf plays a trace through a stack that logs to path. What the trace
// leaves live is freed at the end, so the log ends with nothing live. The log
// lies below the guard and shows what the device was asked: of a guard with a
// quarantine, the frees when the blocks leave it. So the guard has none here.
func logOf(t *testing.T, trace, path string) *replay.Report {
	t.Helper()
	rows, err := alloctrace.ReadFile(filepath.Join("../../traces", trace+".csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	sink := logging.NewJSONSink(file, logging.Queue{Size: 1 << 16})
	rt, err := fencepost.Open(t.Context(), fencepost.Config{LogSinks: []logging.Sink{sink}, Guard: "ledger"})
	if err != nil {
		t.Fatal(err)
	}
	report, err := replay.Play(t.Context(), rows, replay.Config{Runtime: rt.Runtime, Streams: rt.Streams(), Pool: rt})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(t.Context()); err != nil || sink.Dropped() != 0 {
		t.Fatalf("%d records dropped, %v", sink.Dropped(), err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return report
}

// A log that a service wrote is a trace: it replays to the accounting of the
// run that it was written by.
func TestALogReplaysToTheAccountingOfItsRun(t *testing.T) {
	for _, trace := range []string{"serving", "tables"} {
		path := filepath.Join(t.TempDir(), trace+".jsonl")
		first := logOf(t, trace, path)
		var last string
		code := runCaptured(t, func(line string) { last = line }, "replay", "--json", "--guard=off", path)
		if code != exitClean {
			t.Errorf("%s: exit code %d: %s", trace, code, last)
		}
		for field, want := range map[string]any{
			"format": "fencepost-jsonl", "peak_live_bytes": first.PeakLive, "end_live_bytes": 0, "refusals": 0, "unknown_frees": 0,
			"allocations": first.Allocations, "frees": first.Allocations, "drift_bytes": 0,
		} {
			if got, err := lookUp(last, field); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %s is %v, %v; want %v", trace, field, got, err, want)
			}
		}
	}
}
