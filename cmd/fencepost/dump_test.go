package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/traceio/replay"
)

// dumpOf is the one file of a dump in dir.
func dumpOf(t *testing.T, dir, suffix string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "2*-dump-finding"+suffix))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q %v, want one dump", files, err)
	}
	return files[0]
}

// The way of a bug: it is planted, found, dumped, and the dump is a trace that
// replays and a log that converts.
func TestADumpOfAPlantedBugReplays(t *testing.T) {
	dir := t.TempDir()
	if code := runCaptured(t, func(string) {}, "demo", "--for=200ms", "--listen=", "--inject=oob-write", "--incidents="+dir); code != exitProblem {
		t.Fatalf("the demo ended with %d", code)
	}
	log := dumpOf(t, dir, ".jsonl.gz")
	var last string
	code := runCaptured(t, func(line string) { last = line }, "replay", "--json", "--guard=off", log)
	var report replay.Report
	if err := json.Unmarshal([]byte(last), &report); err != nil {
		t.Fatalf("%v in %q", err, last)
	}
	if code != exitClean || report.Allocations == 0 || report.Frees == 0 || report.Refusals != 0 || report.Drift != 0 {
		t.Errorf("exit code %d, %+v", code, report)
	}

	converted := filepath.Join(t.TempDir(), "again.pickle")
	if code := runCaptured(t, func(string) {}, "history", "--format=pytorch", "-o", converted, log); code != exitClean {
		t.Errorf("history ended with %d", code)
	}
	again, err := os.ReadFile(converted)
	if err != nil || len(again) == 0 {
		t.Fatal(err)
	}
	first, err := os.ReadFile(dumpOf(t, dir, ".pickle"))
	if err != nil || !bytes.Contains(first, []byte("inject.oob-write")) {
		t.Errorf("the dump's snapshot knows nothing of the planted block: %v", err)
	}
}
