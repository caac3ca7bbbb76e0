package e2e

import (
	"context"
	"errors"
	"slices"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// Single returns the only finding of a kind.
func Single(t *testing.T, rt *fencepost.Runtime, kind core.FindingKind) core.Finding {
	t.Helper()
	var found []core.Finding
	for _, f := range rt.Findings().Recent() {
		if f.Kind == kind {
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d findings of %s, want 1: %v", len(found), kind, rt.Findings().Recent())
	}
	return found[0]
}

// Names checks that a finding is from that source and names the victim.
func Names(t *testing.T, f core.Finding, source string, victim core.Block) {
	t.Helper()
	if f.Source != source || f.Victim.Tag != victim.Tag || f.Victim.ID.Generation != victim.ID.Generation {
		t.Errorf("%s says: %v; want %s to name %q %v", f.Source, f, source, victim.Tag, victim.ID.Generation)
	}
}

// Memset writes memory around the runtime, and waits for it.
func Memset(ctx context.Context, rt *fencepost.Runtime, ptr, bytes uint64, on driver.Stream) error {
	return errors.Join(rt.Driver().MemsetAsync(ptr, 1, bytes, on), rt.Driver().StreamSynchronize(on))
}

// Hold keeps a stream from doing what is enqueued from now on, so that the
// host cannot have seen it done: what has been seen is ordered.
func Hold(t *testing.T, rt *fencepost.Runtime, on driver.Stream) (release func()) {
	t.Helper()
	release, err := Simulated(rt).Hold(on)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return release
}

// Overrun writes one byte behind a block, frees it and waits until the guard
// has seen it.
func Overrun(t *testing.T, rt *fencepost.Runtime, tag core.Tag) core.Block {
	t.Helper()
	s := Lease(t, rt, "s")
	b := Allocate(t, rt, 1000, s.ID(), tag)
	err := rt.LaunchNamed(t.Context(), "off_by_one", s.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
		return rt.Driver().MemsetAsync(b.ID.Ptr, 7, b.Requested+16, s.Handle())
	})
	Succeed(t, "launch", err)
	Free(t, rt, b)
	Succeed(t, "drain", rt.Drain(t.Context()))
	Succeed(t, "release", s.Release())
	return b
}

// OnlyIncident is the one incident that was written, when all of it is there.
func OnlyIncident(t *testing.T, rt *fencepost.Runtime) *incident.Incident {
	t.Helper()
	files := rt.Incidents().Files()
	if len(files) != 1 {
		t.Fatalf("the files are %q, want one", files)
	}
	in, err := incident.ReadFile(files[0])
	Succeed(t, "read", err)
	return in
}

// TracedRuntime is a runtime whose spans are recorded.
func TracedRuntime(t *testing.T, cfg fencepost.Config) (*fencepost.Runtime, *tracetest.SpanRecorder) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	cfg.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	return OpenDirty(t, cfg), recorder
}

// SpansOf are the recorded spans of an operation.
func SpansOf(recorder *tracetest.SpanRecorder, operation telemetry.SpanName) []sdktrace.ReadOnlySpan {
	return slices.DeleteFunc(recorder.Ended(), func(s sdktrace.ReadOnlySpan) bool { return !IsOf(s, operation) })
}

// IsOf reports whether s is a span of an operation.
func IsOf(s sdktrace.ReadOnlySpan, operation telemetry.SpanName) bool {
	return slices.Contains(s.Attributes(), telemetry.AttrSpanOperation.String(string(operation)))
}
