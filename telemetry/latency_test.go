package telemetry_test

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// slow takes its time to allocate.
type slow struct {
	*fencing
	takes time.Duration
}

func (s slow) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	time.Sleep(s.takes)
	return s.fencing.Allocate(ctx, r)
}

// scrape fetches the metrics of r as OpenMetrics, which have exemplars in text.
func scrape(t *testing.T, r *telemetry.Resource) []byte {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(must.Get(metrics.NewCollector(metrics.Source{Device: r, Operations: r.Operations}))(t))
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	defer server.Close()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil))(t)
	request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	response, err := http.DefaultClient.Do(request)
	must.Do(t, err)
	defer response.Body.Close()
	if contentType := response.Header.Get("Content-Type"); !strings.HasPrefix(contentType, "application/openmetrics-text") {
		t.Fatalf("the handler answers with %s", contentType)
	}
	return must.Get(io.ReadAll(response.Body))(t)
}

// histogramOf is the durations of op.
func histogramOf(t *testing.T, r *telemetry.Resource, op oplog.Op) *dto.Histogram {
	t.Helper()
	for _, m := range gather(t, traced{Resource: r})["gpumem_operation_duration_seconds"].GetMetric() {
		if labelOf(m, "op") == op.String() {
			return m.GetHistogram()
		}
	}
	t.Fatalf("no durations of %v", op)
	return nil
}

// As many durations as calls, refused ones too: they are what callers waited.
func TestEveryCallHasADuration(t *testing.T) {
	r := must.Get(telemetry.NewResource(newFencing(), telemetry.Config{}))(t)
	life(t.Context(), t, r)
	r.Unwrap().(*fencing).FailNext("Allocate", &core.OutOfBudgetError{})
	_, _ = r.Allocate(t.Context(), core.Request{Bytes: 1})
	ops := r.Operations()
	for op := oplog.OpAllocate; op <= oplog.OpDrain; op++ {
		want := ops.Succeeded(op)
		for _, reason := range metrics.Reasons() {
			want += ops.Failed(op, reason)
		}
		h := histogramOf(t, r, op)
		if h.GetSampleCount() != want || ops.Calls(op) != want {
			t.Errorf("%v: %d durations, %d calls, %d results", op, h.GetSampleCount(), ops.Calls(op), want)
		}
		if measured := h.GetSampleSum() > 0; measured != (want > 0) {
			t.Errorf("%v: %v s in %d calls", op, h.GetSampleSum(), want)
		}
	}
	if ops.Failed(oplog.OpAllocate, metrics.ReasonOutOfBudget) != 1 {
		t.Errorf("nothing was refused")
	}
}

func TestADurationIsWhatTheCallerWaited(t *testing.T) {
	const takes = 3 * time.Millisecond
	r := must.Get(telemetry.NewResource(slow{newFencing(), takes}, telemetry.Config{}))(t)
	start := time.Now()
	_ = must.Get(r.Allocate(t.Context(), core.Request{Bytes: 64}))(t)
	waited := time.Since(start)
	h := histogramOf(t, r, oplog.OpAllocate)
	if sum := h.GetSampleSum(); sum < takes.Seconds() || sum > waited.Seconds() {
		t.Errorf("%v s measured, of a call that slept %v and took %v", sum, takes, waited)
	}
	for _, bucket := range h.GetBucket() {
		if in := bucket.GetUpperBound() >= h.GetSampleSum(); in != (bucket.GetCumulativeCount() == 1) {
			t.Errorf("the bucket up to %v has %d", bucket.GetUpperBound(), bucket.GetCumulativeCount())
		}
	}
}

// One observation of each kind of operation under a sampled trace is an
// exemplar, in both formats, and names the operation's own span.
func TestSampledOperationsAreExemplars(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	life(r.request(t), t, r.Resource)
	spans := map[string]string{}
	for _, s := range r.recorder.Ended() {
		spans[operationOf(s)] = s.SpanContext().SpanID().String()
	}
	text := scrape(t, r.Resource)
	traceID := hex.EncodeToString(append([]byte{1}, make([]byte, 15)...))
	for op, span := range map[oplog.Op]telemetry.SpanName{oplog.OpAllocate: telemetry.SpanAlloc, oplog.OpDeallocate: telemetry.SpanDealloc,
		oplog.OpPrepare: telemetry.SpanLaunch, oplog.OpFinish: telemetry.SpanLaunch} {
		if !hasExemplar(string(text), op, traceID, spans[string(span)]) {
			t.Errorf("%v has no exemplar of span %s in\n%s", op, spans[string(span)], text)
		}
		h := histogramOf(t, r.Resource, op)
		if n := len(h.GetExemplars()); n == 0 || n > int(h.GetSampleCount()) || len(h.GetPositiveSpan()) == 0 {
			t.Errorf("%v: the native histogram has %d exemplars of %d calls and %d spans of buckets", op, n, h.GetSampleCount(), len(h.GetPositiveSpan()))
		}
		for _, e := range h.GetExemplars() {
			if e.GetTimestamp() == nil || e.GetValue() <= 0 || e.GetValue() > h.GetSampleSum() {
				t.Errorf("%v: an exemplar is of %v s at %v, all calls took %v s", op, e.GetValue(), e.GetTimestamp(), h.GetSampleSum())
			}
		}
	}
}

// hasExemplar reports whether a bucket of op has an exemplar of that span.
func hasExemplar(text string, op oplog.Op, traceID, spanID string) bool {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "gpumem_operation_duration_seconds"+"_bucket") && strings.Contains(line, `op="`+op.String()+`"`) &&
			strings.Contains(line, `# {`) && strings.Contains(line, `trace_id="`+traceID+`"`) && strings.Contains(line, `span_id="`+spanID+`"`) {
			return true
		}
	}
	return false
}

func TestUnsampledOperationsAreNoExemplars(t *testing.T) {
	for name, r := range map[string]traced{
		"unsampled parent": newTraced(t, telemetry.Config{}),
		"declined root":    newTraced(t, telemetry.Config{}, sdktrace.WithSampler(sdktrace.NeverSample())),
		"nothing traced":   newTraced(t, telemetry.Config{Level: telemetry.LevelOff}),
	} {
		life(unsampled(t.Context()), t, r.Resource)
		life(map[bool]context.Context{true: t.Context(), false: unsampled(t.Context())}[name != "unsampled parent"], t, r.Resource)
		if text := scrape(t, r.Resource); strings.Contains(string(text), "trace_id") {
			t.Errorf("%s: there is an exemplar in\n%s", name, text)
		}
	}
}

// Exemplars stay bounded, however many calls are traced.
func TestExemplarsAreBounded(t *testing.T) {
	r := newTraced(t, telemetry.Config{})
	ctx := r.request(t)
	for range 500 {
		block := must.Get(r.Allocate(ctx, core.Request{Bytes: 64}))(t)
		_ = must.Get(r.Deallocate(ctx, block.ID))(t)
	}
	h := histogramOf(t, r.Resource, oplog.OpAllocate)
	if n := len(h.GetExemplars()); n == 0 || n > len(h.GetBucket())+1 {
		t.Errorf("%d exemplars in %d buckets", n, len(h.GetBucket()))
	}
}
