package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/traceio/replay"
)

// logOf plays a trace through a stack that logs to path. What the trace
// leaves live is freed at the end, so the log ends with nothing live. The log
// lies below the guard and shows what the device was asked: of a guard with a
// quarantine, the frees when the blocks leave it. So the guard has none here.
func logOf(t *testing.T, trace, path string) *replay.Report {
	t.Helper()
	rows, err := alloctrace.DefaultLimits.ReadFile(filepath.Join("../../traces", trace+".csv.gz"))
	must.Do(t, err)
	file, err := os.Create(path)
	must.Do(t, err)
	sink := logging.NewJSONSink(file, logging.Queue{Size: 1 << 16})
	rt, err := fencepost.Open(t.Context(), fencepost.Config{LogSinks: []logging.Sink{sink}, Guard: "ledger"})
	must.Do(t, err)
	report, err := replay.Play(t.Context(), rows, replay.Config{Runtime: rt.Core(), Streams: rt.Streams(), Pool: rt})
	must.Do(t, err)
	must.Get(rt.Close(t.Context()))(t)
	if err := sink.Close(t.Context()); err != nil || sink.Dropped() != 0 {
		t.Fatalf("%d records dropped, %v", sink.Dropped(), err)
	}
	must.Do(t, file.Close())
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

// Of a name of any length the log keeps what its readers can read.
func TestALogWithLongNamesIsReadAgain(t *testing.T) {
	long := strings.Repeat("x", 70_000)
	path := filepath.Join(t.TempDir(), "log.jsonl")
	file, err := os.Create(path)
	must.Do(t, err)
	sink := logging.NewJSONSink(file, logging.Queue{})
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, LogSinks: []logging.Sink{sink}, LogLevel: logging.Uses, Guard: "ledger"})
	must.Do(t, err)
	b, err := rt.Allocate(t.Context(), core.Request{Bytes: 64, Tag: core.Tag(long)})
	if err == nil {
		err = rt.LaunchNamed(t.Context(), long, core.DefaultStream, []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error { return nil })
	}
	if err == nil {
		_, err = rt.Deallocate(t.Context(), b.ID)
	}
	if _, closing := rt.Close(t.Context()); err != nil || closing != nil {
		t.Fatal(err, closing)
	}
	must.Do(t, sink.Close(t.Context()), file.Close())
	for _, args := range [][]string{{"history", path, "--format=pytorch", "-o", filepath.Join(t.TempDir(), "x")}, {"history", path, "--format=perfetto", "-o", filepath.Join(t.TempDir(), "y")}, {"replay", "--guard=off", path}} {
		if code := runCaptured(t, func(string) {}, args...); code != exitClean {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}
