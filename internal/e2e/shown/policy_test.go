package shown_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/findings"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// stopChild, where it is set, makes this binary the process that a policy
// stops: it holds the folder for incidents.
const stopChild = "STOP_CHILD_FOLDER"

// TestMain is also the process that a policy stops.
func TestMain(m *testing.M) {
	if dir := os.Getenv(stopChild); dir != "" {
		e2e.Isolate()
		runStopChild(dir)
		os.Exit(0)
	}
	e2e.Main(m)
}

// runStopChild plants a bug under the policy and never returns if that works.
func runStopChild(dir string) {
	ctx := context.Background()
	log, err := os.Create(dir + "/log.jsonl")
	if err != nil {
		panic(err)
	}
	cfg := fencepost.Config{Guard: "hunt", GuardPolicy: fencepost.PolicyStop, Incidents: dir,
		LogSinks: []logging.Sink{logging.NewJSONSink(log, logging.Queue{})}}
	if os.Getenv("STOP_CHILD_STUCK") != "" { // a sink that never answers
		cfg.LogSinks = append(cfg.LogSinks, stuckSink{})
	}
	if os.Getenv("STOP_CHILD_CALLBACK") != "" { // and a callback that never returns
		cfg.OnFinding = func(core.Finding) { select {} }
	}
	rt, err := fencepost.Open(ctx, cfg)
	if err != nil {
		panic(err)
	}
	b, err := rt.Allocate(ctx, core.Request{Bytes: 1000, Tag: "victim"})
	if err != nil {
		panic(err)
	}
	if err := rt.Driver().MemsetAsync(b.ID.Ptr, 7, b.Requested+16, 0); err != nil {
		panic(err)
	}
	if _, err := rt.Deallocate(ctx, b.ID); err != nil {
		panic(err)
	}
	_ = rt.Drain(ctx)
	fmt.Println("the process goes on")
}

type stuckSink struct{}

func (stuckSink) Put(logging.Record) {}

func (stuckSink) Flush(context.Context) error { select {} }

func (stuckSink) Close(context.Context) error { return nil }

func (stuckSink) Dropped() uint64 { return 0 }

// stopped runs the child and returns what it wrote to standard error.
func stopped(t *testing.T, dir string, env ...string) string {
	t.Helper()
	bounded, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	child := exec.CommandContext(bounded, os.Args[0], "-test.run=^$")
	child.Env = append(append(os.Environ(), stopChild+"="+dir), env...)
	var stdout, stderr bytes.Buffer
	child.Stdout, child.Stderr = &stdout, &stderr
	err := child.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 70 || strings.Contains(stdout.String(), "goes on") {
		t.Fatalf("the child ended with %v\n%s\n%s", err, stdout.String(), stderr.String())
	}
	return stderr.String()
}

func TestAStopEndsTheProcessWithTheFindingDelivered(t *testing.T) {
	dir := t.TempDir()
	text := stopped(t, dir)
	_, path, ok := strings.Cut(strings.TrimSpace(text), "incident: ")
	in, err := incident.ReadFile(path)
	if !ok || err != nil {
		t.Fatalf("no incident (%v):\n%s", err, text)
	}
	if in.Finding.Kind != "oob-write" || in.Finding.Victim.Tag != "victim" || in.Guard.Policy != "stop" || in.Stack == "" || !strings.Contains(text, "oob-write: ") || !strings.Contains(text, "exit code 70") {
		t.Errorf("the incident is %+v\n%s", in, text)
	}
	if log := e2e.Read(t, dir+"/log.jsonl"); !strings.Contains(log, `"op":"allocate"`) {
		t.Errorf("the log was not flushed: %q", log)
	}
}

func TestAStopIsBoundedWhereALogDoesNotAnswer(t *testing.T) { stoppedInTime(t, "STOP_CHILD_STUCK=1") }

// The program's own callback may be what hangs because memory is corrupt.
func TestAStopIsBoundedWhereOnFindingDoesNotReturn(t *testing.T) {
	stoppedInTime(t, "STOP_CHILD_CALLBACK=1")
}

func stoppedInTime(t *testing.T, stuck string) {
	t.Helper()
	start := time.Now()
	text := stopped(t, t.TempDir(), stuck)
	if took := time.Since(start); took > time.Minute || !strings.Contains(text, "incident: ") {
		t.Errorf("after %v:\n%s", took, text)
	}
}

// OnStop takes the place of the exit, once, and may close the runtime.
func TestOnStopTakesThePlaceOfTheExit(t *testing.T) {
	var calls, heard atomic.Int64
	ended := make(chan core.Finding, 1)
	var rt *fencepost.Runtime
	ready := make(chan struct{})
	hear := func(core.Finding) { heard.Add(1) }
	rt = e2e.OpenDirty(t, fencepost.Config{Guard: "hunt", GuardPolicy: fencepost.PolicyStop, Incidents: t.TempDir(), OnFinding: hear, OnStop: func(f core.Finding) {
		<-ready
		calls.Add(1)
		_, _ = rt.Close(context.Background())
		ended <- f
	}})
	close(ready)
	blocks := []core.Block{e2e.Allocate(t, rt, 1000, core.DefaultStream, "first"), e2e.Allocate(t, rt, 1000, core.DefaultStream, "second")}
	for _, b := range blocks {
		e2e.Succeed(t, "memset", e2e.Memset(t.Context(), rt, b.ID.Ptr, b.Requested+16, 0))
	}
	e2e.Free(t, rt, blocks[0])
	_, _ = rt.Deallocate(t.Context(), blocks[1].ID) // may come after the end
	_ = rt.Drain(t.Context())                       // as may this
	select {
	case f := <-ended:
		if f.Kind != names.FindingOutOfBoundsWrite {
			t.Errorf("stopped for %v", f)
		}
	case <-time.After(time.Minute):
		t.Fatal("OnStop was not called, or could not close the runtime")
	}
	if total := rt.Findings().Total(); heard.Load() == 0 || uint64(heard.Load()) != total {
		t.Errorf("OnFinding heard %d of %d findings", heard.Load(), total)
	}
	if calls.Load() != 1 || len(rt.Incidents().Files()) == 0 {
		t.Errorf("%d calls, files %q", calls.Load(), rt.Incidents().Files())
	}
}

// A misuse that was refused has corrupted nothing: it is no reason to stop.
func TestOnlyCorruptionStops(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "ledger", GuardPolicy: fencepost.PolicyStop, OnStop: func(f core.Finding) { t.Errorf("stopped for %v", f) }})
	b := e2e.Allocate(t, rt, 64, core.DefaultStream, "a")
	e2e.Free(t, rt, b)
	expect.ErrorOf(rt.Deallocate(t.Context(), b.ID))(t, core.ErrUseAfterFree, "the second free")
	e2e.Single(t, rt, names.FindingDoubleFree)
	kinds := findings.StopKinds()
	const want = "[uaf-write uaf-read oob-write oob-read underflow sealed-write stray-write missing-fence reuse-race use-before-alloc-ready undeclared-access]"
	if got := fmt.Sprint(kinds); got != want {
		t.Errorf("%s stop, want %s", got, want)
	}
	for _, kind := range []core.FindingKind{names.FindingLeak, names.FindingOutOfMemory, names.FindingAccountingMismatch, names.FindingDoubleFree, names.FindingStickyError, names.FindingDroppedRecorder} {
		if slices.Contains(kinds, kind) {
			t.Errorf("%s stops", kind)
		}
	}
	kinds[0] = "changed"
	if slices.Contains(findings.StopKinds(), "changed") {
		t.Error("the caller's list is the package's own")
	}
}

func TestAnUnknownPolicyIsRefused(t *testing.T) {
	_, err := fencepost.Open(t.Context(), fencepost.Config{GuardPolicy: "explode"})
	if e, ok := errors.AsType[*core.InvalidRequestError](err); !ok || e.Field != "GuardPolicy" || !strings.Contains(e.Reason, "report, refuse or stop") {
		t.Errorf("got %v", err)
	}
}

// Spans that wait in a batch are sent before the program is stopped.
func TestAStopFlushesSpans(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(time.Hour)))
	t.Cleanup(func() { e2e.Succeed(t, "shutdown", provider.Shutdown(context.Background())) })
	sent := make(chan int, 1)
	rt := e2e.OpenDirty(t, fencepost.Config{Guard: "hunt", GuardPolicy: fencepost.PolicyStop, TracerProvider: provider, OnStop: func(core.Finding) {
		n := 0
		for _, s := range exporter.GetSpans() {
			if s.Name == "gpumem.finding oob-write" {
				n++
			}
		}
		sent <- n
	}})
	e2e.Overrun(t, rt, "victim")
	select {
	case n := <-sent:
		if n != 1 {
			t.Errorf("%d spans of the finding were sent before the stop", n)
		}
	case <-time.After(time.Minute):
		t.Fatal("OnStop was not called")
	}
}
