package telemetry_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// A request's trace shows the device: when its launch began and ended there, and the launch of another request, sampled or
// not, that held it up.
func TestATraceShowsWhatTheDeviceWaitedFor(t *testing.T) {
	for name, blamed := range map[string]bool{"the other request is sampled": true, "it is not": false} {
		t.Run(name, func(t *testing.T) { showsTheDevice(t, blamed) })
	}
}

func showsTheDevice(t *testing.T, blamed bool) {
	device := must.Get(sim.Open(sim.Config{Bytes: 64 << 20, Schedule: sim.Seeded(7)}))(t)
	must.Do(t, device.RegisterModule("busy", sim.Kernel{Name: "busy", Run: func(*sim.Exec) {},
		Takes: func(a sim.Args) time.Duration { return time.Duration(a.U64(0)) * time.Microsecond }}))
	busy := must.Get(device.ModuleFunction(must.Get(device.ModuleLoad(driver.Image{Name: "busy"}))(t), "busy"))(t)
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
	unsampled := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	rt := must.Get(fencepost.Open(t.Context(), fencepost.Config{Driver: device, TracerProvider: provider, Budget: 32 << 20,
		Pool: cuda.PoolConfig{ReapInterval: -1}}))(t)
	streams := [2]*cuda.Lease{must.Get(rt.Streams().Acquire(t.Context(), "writer"))(t), must.Get(rt.Streams().Acquire(t.Context(), "reader"))(t)}
	block := must.Get(rt.Allocate(t.Context(), core.Request{Bytes: 256, Stream: streams[0].ID(), Tag: "index.postings"}))(t)
	launch := func(from *sdktrace.TracerProvider, name string, on *cuda.Lease, access core.Access, us uint64) {
		ctx, span := from.Tracer("request").Start(t.Context(), "request "+name)
		defer span.End()
		must.Do(t, rt.LaunchNamed(ctx, name, on.ID(), []core.Use{{Block: block.ID, Access: access}}, func(context.Context) error {
			return device.Launch(&driver.Launch{Function: busy, Stream: on.Handle(), Args: []driver.Arg{driver.U64(us)}})
		}))
	}
	first := provider
	if !blamed {
		first = unsampled
	}
	launch(first, "merge", streams[0], core.Write, 11_200)
	launch(provider, "query", streams[1], core.Read, 500)
	must.Do(t, device.Synchronize())
	must.Get(rt.Deallocate(t.Context(), block.ID))(t)
	for _, s := range streams {
		must.Do(t, s.Release())
	}
	must.Get(rt.Close(t.Context()))(t) // the last reap
	must.Do(t, device.Close())

	spans := map[string]sdktrace.ReadOnlySpan{}
	for _, s := range recorder.Ended() {
		spans[s.Name()] = s
	}
	s, of := spans["gpumem.device query"], spans["gpumem.launch query"]
	if s == nil || of == nil {
		t.Fatalf("the spans are %v", spans)
	}
	if s.Parent().SpanID() != of.SpanContext().SpanID() || s.SpanContext().TraceID() != of.SpanContext().TraceID() {
		t.Error("the launch on the device is not under the launch")
	}
	about(t, "query took", s.EndTime().Sub(s.StartTime()), 500*time.Microsecond)
	about(t, "it was held up", time.Duration(valueOf(s.Attributes(), telemetry.AttrHeld).AsInt64()), 11_200*time.Microsecond)
	if by := valueOf(s.Attributes(), telemetry.AttrHeldBy).AsStringSlice(); len(by) != 1 || !strings.Contains(by[0], `"merge" on stream`) || !strings.Contains(by[0], `write of "index.postings"`) {
		t.Errorf("it was held up by %q", by)
	}
	if _, timed := spans["gpumem.device merge"]; timed != blamed {
		t.Errorf("merge has a span of the device: %v", timed)
	}
	if !blamed {
		if n := len(s.Links()); n != 0 {
			t.Errorf("%d links to what is not sampled", n)
		}
		return
	}
	finish := spans["gpumem.finish merge"]
	if len(s.Links()) != 1 || s.Links()[0].SpanContext.SpanID() != finish.SpanContext().SpanID() {
		t.Fatalf("the links are %v", s.Links())
	}
	link := s.Links()[0].Attributes
	about(t, "the link says", time.Duration(valueOf(link, telemetry.AttrHeld).AsInt64()), 11_200*time.Microsecond)
	if got := valueOf(link, telemetry.AttrLaunchName).AsString(); got != "merge" {
		t.Errorf("the link says %q", got)
	}
}

func valueOf(attrs []attribute.KeyValue, key attribute.Key) attribute.Value {
	for _, kv := range attrs {
		if kv.Key == key {
			return kv.Value
		}
	}
	return attribute.Value{}
}

// about allows for the calls of the host, a microsecond of virtual time each.
func about(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if (got - want).Abs() > 50*time.Microsecond {
		t.Errorf("%s %v, want %v", what, got, want)
	}
}

// heard is a sink that counts.
type heard struct{ launches, lost int }

func (h *heard) Done(*oplog.DeviceWork) { h.launches++ }
func (h *heard) Lost(n int)             { h.lost += n }

// A launch of no sampled trace has no span, and is passed on.
func TestAnUnsampledLaunchHasNoSpanOfTheDevice(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	var next heard
	spans := telemetry.DeviceSpans(telemetry.Config{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))}, 0, &next)
	spans.Done(&oplog.DeviceWork{Name: "query", Weight: 250})
	spans.Lost(3)
	if n := len(recorder.Started()); n != 0 {
		t.Errorf("%d spans", n)
	}
	if next != (heard{1, 3}) {
		t.Errorf("passed on was %+v", next)
	}
}
