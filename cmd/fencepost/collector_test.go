package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// collector is an OpenTelemetry collector's HTTP endpoint for traces, which
// takes its time.
type collector struct {
	delay time.Duration
	mu    sync.Mutex
	spans map[string]int
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(c.delay)
	body, err := io.ReadAll(r.Body)
	var request collectortrace.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &request) != nil {
		http.Error(w, "not a trace export", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		if !slices.ContainsFunc(resource.GetResource().GetAttributes(), func(kv *commonpb.KeyValue) bool { return kv.GetKey() == "hw.id" }) {
			http.Error(w, "spans of no GPU", http.StatusBadRequest)
			return
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				operation, _, _ := strings.Cut(span.GetName(), " ")
				c.spans[operation]++
			}
		}
	}
}

func (c *collector) count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans[name]
}

// The standard variables are all that it takes to send spans to a collector,
// and one that takes 50 ms for a batch gets every span of work of which a tenth is
// traced: of all of it a fast machine makes more than a queue and such a collector
// take.
func TestTheDemoSendsSpansToACollector(t *testing.T) {
	c := &collector{delay: 50 * time.Millisecond, spans: map[string]int{}}
	server := httptest.NewServer(c)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	names := []string{"gpumem.alloc", "gpumem.launch", "gpumem.prepare", "gpumem.finish", "gpumem.dealloc"}
	last, code := demoUntil(t, func(string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return c.count(name) == 0 })
	}, "--sample=0.1", "--json")
	if code != exitClean {
		t.Errorf("exit code %d: %s", code, last)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if c.spans[name] == 0 {
			t.Errorf("the collector got no %s: %v", name, c.spans)
		}
	}
	total := 0
	for _, n := range c.spans {
		total += n
	}
	started := must.Get(lookUp(last, "spans_started"))(t)
	if exported := ended(t, last); total != exported {
		t.Errorf("the collector got %d spans of %v started, the report says %d", total, started, exported)
	}
}

func ended(t *testing.T, report string) int {
	t.Helper()
	value := must.Get(lookUp(report, "spans_ended"))(t)
	n := must.Get(value.(interface{ Int64() (int64, error) }).Int64())(t)
	return int(n)
}

// A collector that refuses everything costs spans, which are counted, and
// never the work.
func TestADeadCollectorCostsSpansOnly(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusBadRequest)
	}))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	last, code := demoUntil(t, counted(t, "gpumem_spans_ended_total"), "--sample=0.1", "--json")
	if wrong, err := lookUp(last, "wrong_results"); err != nil || wrong.(interface{ String() string }).String() != "0" {
		t.Errorf("wrong results: %v, %v", wrong, err)
	}
	dropped, err := lookUp(last, "spans_dropped")
	if err != nil || dropped.(interface{ String() string }).String() == "0" || code != exitProblem {
		t.Errorf("%v spans dropped (%v), exit code %d", dropped, err, code)
	}
}
