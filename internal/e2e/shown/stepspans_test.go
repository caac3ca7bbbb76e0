package shown_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// stepsOf are the copies and waits among spans, in their order, each with the
// name of its parent.
func stepsOf(spans []sdktrace.ReadOnlySpan) (steps []string) {
	names := map[trace.SpanID]string{}
	for _, s := range spans {
		names[s.SpanContext().SpanID()] = s.Name()
	}
	for _, s := range spans {
		if !e2e.IsOf(s, telemetry.SpanCopy) && !e2e.IsOf(s, telemetry.SpanWait) {
			continue
		}
		line := s.Name()
		for _, kv := range s.Attributes() {
			if kv.Key == telemetry.AttrCopyBytes {
				line += " " + kv.Value.String()
			}
		}
		steps = append(steps, fmt.Sprintf("%s in %q", line, names[s.Parent().SpanID()]))
	}
	return steps
}

// What a job waits for is in its trace: the copies to and from the device, and the
// wait for what was enqueued, through Download and at its end.
func TestAJobsCopiesAndWaitsAreInItsTrace(t *testing.T) {
	rt, recorder := e2e.TracedRuntime(t, fencepost.Config{Guard: "off"})
	work := func(ctx context.Context) {
		e2e.Succeed(t, "the job", rt.Do(ctx, "job", func(j *fencepost.Job) error {
			up, err := fencepost.Upload(j, []uint32{3, 1, 2})
			if err != nil {
				return err
			}
			if _, err := fencepost.Download(j, up); err != nil {
				return err
			}
			_, err = fencepost.Upload(j, []uint64{1})
			return err
		}))
	}
	ctx, request := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("service").Start(t.Context(), "not sampled")
	work(ctx)
	request.End()
	if n := len(recorder.Started()); n != 0 {
		t.Errorf("%d spans of a request that is not sampled", n)
	}
	ctx, request = sdktrace.NewTracerProvider().Tracer("service").Start(t.Context(), "POST /sort")
	work(ctx)
	request.End()
	want := []string{`gpumem.copy to_device 12 in "gpumem.launch copy.to_device"`, `gpumem.copy to_host 12 in "gpumem.launch copy.to_host"`, `gpumem.wait stream in "gpumem.job job"`, `gpumem.copy to_device 8 in "gpumem.launch copy.to_device"`, `gpumem.wait stream in "gpumem.job job"`}
	if got := stepsOf(recorder.Ended()); !slices.Equal(got, want) {
		t.Errorf("the trace has %q, want %q", got, want)
	}
}

func TestACopyBetweenDevicesIsInTheTrace(t *testing.T) {
	a, recorder := e2e.TracedRuntime(t, fencepost.Config{Guard: "off"})
	b := e2e.Open(t, fencepost.Config{Guard: "off", Ordinal: 1, TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))})
	here, there := e2e.Lease(t, a, "here"), e2e.Lease(t, b, "there")
	ctx, request := sdktrace.NewTracerProvider().Tracer("service").Start(t.Context(), "POST /move")
	x := must.Get(cuda.Alloc[uint32](ctx, a.Memory(), 1000, cuda.AllocOptions{Stream: here.ID(), Tag: "x"}))(t)
	y := must.Get(cuda.Alloc[uint32](ctx, b.Memory(), 1000, cuda.AllocOptions{Stream: there.ID(), Tag: "y"}))(t)
	e2e.Succeed(t, "copying", cuda.CopyFromPeer(ctx, y, there.ID(), x, core.DefaultStream))
	e2e.Succeed(t, "waiting", b.Streams().Synchronize(ctx, there.ID()))
	e2e.Succeed(t, "freeing", x.Free(ctx))
	e2e.Succeed(t, "freeing", y.Free(ctx))
	request.End()
	want := []string{`gpumem.copy from_peer 4000 in "gpumem.launch copy.from_peer"`, `gpumem.wait stream in ""`}
	if got := stepsOf(recorder.Ended()); !slices.Equal(got, want) {
		t.Errorf("the trace has %q, want %q", got, want)
	}
	for _, s := range e2e.SpansOf(recorder, telemetry.SpanCopy) {
		if attributeOf(s, telemetry.AttrDevice) != 1 {
			t.Errorf("the copy is of device %v", s.Attributes())
		}
	}
}

func attributeOf(s sdktrace.ReadOnlySpan, key attribute.Key) int64 {
	for _, kv := range s.Attributes() {
		if kv.Key == key {
			return kv.Value.AsInt64()
		}
	}
	return -1
}
