package shown_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// The job's own account, its span, the history, the log and the metrics say the same of it.
func TestAJobsBillIsTheSameEverywhere(t *testing.T) {
	var file bytes.Buffer
	sink := logging.NewJSONSink(&file, logging.Queue{})
	rt, recorder := e2e.TracedRuntime(t, fencepost.Config{Guard: "off", LogSinks: []logging.Sink{sink}})
	var job *fencepost.Job
	e2e.Succeed(t, "the job", rt.Do(t.Context(), "index.build", func(j *fencepost.Job) error {
		job = j
		x, err := fencepost.Upload(j, make([]uint32, 1000))
		if err != nil {
			return err
		}
		if err := x.Free(t.Context()); err != nil {
			return err
		}
		_, err = fencepost.Upload(j, make([]uint32, 500))
		return err
	}, fencepost.Reserve(5000, 0)))
	want := job.Account()
	if want.Requested != 4000 || want.Allocated.Requested != 6000 || want.Launches != 2 {
		t.Errorf("%+v", want)
	}

	attributes := map[string]any{}
	for _, s := range recorder.Ended() {
		if s.Name() == "gpumem.job index.build" {
			for _, kv := range s.Attributes() {
				attributes[string(kv.Key)] = kv.Value.AsInterface()
			}
		}
	}
	for key, value := range map[string]any{
		string(telemetry.AttrPeakRequested): int64(want.Requested), string(telemetry.AttrPeakBytes): int64(want.Bytes), string(telemetry.AttrByteSeconds): want.ByteSeconds,
		string(telemetry.AttrAllocatedBytes): int64(want.Allocated.Bytes), string(telemetry.AttrAllocatedBlocks): int64(2),
		string(telemetry.AttrReserved): int64(5000), string(telemetry.AttrUnusedByteSeconds): want.UnusedByteSeconds,
		string(telemetry.AttrWaitMemory): int64(want.WaitedForMemory), string(telemetry.AttrWaitStream): int64(want.WaitedForStream), string(telemetry.AttrWaitDevice): int64(want.WaitedOnDevice),
		string(telemetry.AttrLaunches): int64(2), string(telemetry.AttrTag): "index.build",
	} {
		if attributes[key] != value {
			t.Errorf("the span has %s %v, want %v", key, attributes[key], value)
		}
	}

	history := e2e.Request(rt.HistoryHandler(), http.MethodGet, "/debug/gpumem/history?format=jsonl", "").Body
	must.Do(t, sink.Close(context.Background()))
	for name, text := range map[string]*bytes.Buffer{"the history": history, "the log": &file} {
		var jobs []oplog.Event
		for _, e := range must.Get(alloctrace.ReadEvents("log", bytes.NewReader(text.Bytes())))(t) {
			if e.Op == oplog.OpJob {
				jobs = append(jobs, e)
			}
		}
		if len(jobs) != 1 || jobs[0].Tag != "index.build" || jobs[0].Span.IsZero() {
			t.Fatalf("%s has %+v", name, jobs)
		}
		jobs[0].Job.TimedLaunches = want.TimedLaunches // of some it may be known later
		if diff := cmp.Diff(want, *jobs[0].Job); diff != "" {
			t.Errorf("%s (-want +got): %s", name, diff)
		}
	}

	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(rt.Collector())
	sums := map[string]float64{}
	for _, f := range must.Get(registry.Gather())(t) {
		if strings.HasPrefix(f.GetName(), "gpumem_job_") {
			for _, m := range f.GetMetric() {
				sums[f.GetName()] += m.GetHistogram().GetSampleSum() + m.GetCounter().GetValue()
			}
		}
	}
	if diff := cmp.Diff(map[string]float64{
		"gpumem_job_peak_bytes": float64(want.Bytes), "gpumem_job_byte_seconds": want.ByteSeconds, "gpumem_job_unused_byte_seconds_total": want.UnusedByteSeconds,
		"gpumem_job_wait_seconds":              want.WaitedForMemory.Seconds() + want.WaitedForStream.Seconds(),
		"gpumem_job_device_wait_seconds_total": want.WaitedOnDevice.Seconds(), "gpumem_job_seconds_total": want.Elapsed.Seconds(),
		"gpumem_job_predictions_total": 0, "gpumem_job_predicted_bytes_total": 0, "gpumem_job_prediction_error_bytes_total": 0,
	}, sums); diff != "" {
		t.Errorf("the metrics (-want +got): %s", diff)
	}
}

// The span of a job that panics ends, and says so.
func TestAJobThatPanicsHasItsBill(t *testing.T) {
	rt, recorder := e2e.TracedRuntime(t, fencepost.Config{Guard: "off"})
	func() {
		defer func() { _ = recover() }()
		_ = rt.Do(t.Context(), "panics", func(*fencepost.Job) error { panic("it does") })
	}()
	ended := recorder.Ended()
	if len(ended) != 1 || ended[0].Name() != "gpumem.job panics" || !strings.Contains(ended[0].Status().Description, "panicked") {
		t.Errorf("%d spans, %v", len(ended), ended)
	}
}

// Neither for itself nor for what it does.
func TestAJobThatIsNotSampledMakesNoSpan(t *testing.T) {
	for name, sampler := range map[string]sdktrace.Sampler{"never": sdktrace.NeverSample(), "by its parent": sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0)), "asked": asked{}} {
		recorder := tracetest.NewSpanRecorder()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithSpanProcessor(recorder))
		rt := e2e.Open(t, fencepost.Config{Guard: "off", TracerProvider: provider})
		for range 20 {
			e2e.Succeed(t, "the job", rt.Do(t.Context(), "job", func(j *fencepost.Job) error {
				x, err := fencepost.Upload(j, []uint32{1})
				if err != nil {
					return err
				}
				_, err = fencepost.Download(j, x)
				return err
			}))
		}
		if n := len(recorder.Ended()); n != 0 {
			t.Errorf("%s: %d spans", name, n)
		}
	}
}

// asked is a sampler of no known kind that takes nothing.
type asked struct{}

func (asked) ShouldSample(sdktrace.SamplingParameters) sdktrace.SamplingResult {
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}
func (asked) Description() string { return "asked" }
