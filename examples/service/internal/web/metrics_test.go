package web_test

import (
	"bytes"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
)

func TestTheMetricsLint(t *testing.T) {
	s := start(t, setup{})
	s.post(api.RouteSort, keys(10))
	s.post(api.RouteSort, "x")
	page := s.get(api.RouteMetrics)
	if problems, err := promlint.New(bytes.NewReader(page.body)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	for _, want := range []string{
		`service_rows_total{route="/sort"} 10`,
		`service_refusals_total{reason="malformed"} 1`,
		`service_request_duration_seconds_count{code="200",route="/sort"} 1`,
		`service_request_duration_seconds_count{code="400",route="/sort"} 1`,
		`gpumem_allocations_total{device="0"} 3`,
		`gpumem_health{device="0",state="ok"} 1`,
	} {
		if !strings.Contains(string(page.body), want) {
			t.Errorf("no %s", want)
		}
	}
}

// A dashboard gets from a slow bucket to the trace of one request in it.
func TestTheDurationNamesATrace(t *testing.T) {
	s := start(t, setup{})
	s.post(api.RouteSort, keys(10))
	page := s.get(api.RouteMetrics, "Accept", "application/openmetrics-text; version=1.0.0")
	exemplar := regexp.MustCompile(`service_request_duration_seconds_bucket\{code="200",route="/sort",le="[^"]+"\} 1 # \{trace_id="([0-9a-f]{32})"\}`).FindSubmatch(page.body)
	if exemplar == nil {
		t.Fatalf("no exemplar in\n%s", page.body)
	}
	for _, span := range s.spans.GetSpans() {
		if span.SpanContext.TraceID().String() == string(exemplar[1]) && span.Name == "POST /sort" {
			return
		}
	}
	t.Errorf("trace %s has no span of the request", exemplar[1])
}

func TestTheDurationIsANativeHistogramToo(t *testing.T) {
	s := start(t, setup{})
	s.post(api.RouteSort, keys(10))
	page := s.get(api.RouteMetrics, "Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	if _, _, err := mime.ParseMediaType(page.header.Get("Content-Type")); err != nil || page.status != http.StatusOK {
		t.Fatalf("%d %v: %v", page.status, page.header, err)
	}
	decoder := expfmt.NewDecoder(bytes.NewReader(page.body), expfmt.NewFormat(expfmt.TypeProtoDelim))
	for {
		var family dto.MetricFamily
		if err := decoder.Decode(&family); err != nil {
			t.Fatalf("the histogram did not come: %v", err)
		}
		if family.GetName() != "service_request_duration_seconds" {
			continue
		}
		h := family.GetMetric()[0].GetHistogram()
		if len(h.GetPositiveSpan()) == 0 || len(h.GetBucket()) == 0 || h.GetSampleCount() != 1 {
			t.Errorf("%v", h)
		}
		return
	}
}
