package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost-gpu/fencepost/core"
)

// capture makes the log of a test readable.
func capture(t *testing.T) (lines func() []string) {
	t.Helper()
	var mu sync.Mutex
	var log bytes.Buffer
	former := slog.Default()
	slog.SetDefault(slog.New(withTrace(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))))
	t.Cleanup(func() { slog.SetDefault(former) })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Split(log.String(), "\n")
	}
}

// line waits for the line of the log that has all of parts.
func line(t *testing.T, lines func() []string, parts ...string) string {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(5 * time.Millisecond) {
	next:
		for _, l := range lines() {
			for _, part := range parts {
				if !strings.Contains(l, part) {
					continue next
				}
			}
			return l
		}
	}
	t.Fatalf("no line has all of %q:\n%s", parts, strings.Join(lines(), "\n"))
	return ""
}

func TestTheLogHasRefusalsInTheirTraceFindingsAndHealth(t *testing.T) {
	lines := capture(t)
	r := start(t, "-budget=1MiB")
	response, err := http.Post(r.url+"/sort", "application/json", strings.NewReader(`{"keys":[1`+strings.Repeat(",1", 1<<18)+`]}`))
	must(t, err)
	defer response.Body.Close()
	var problem struct {
		TraceID string `json:"trace_id"`
	}
	must(t, json.NewDecoder(response.Body).Decode(&problem))
	if response.StatusCode != http.StatusRequestEntityTooLarge || problem.TraceID == "" {
		t.Fatalf("%d %+v", response.StatusCode, problem)
	}
	line(t, lines, "a request was refused", "route=\"POST /sort\"", "status=413", "code=exceeds_budget", "out of budget: requested", "trace_id="+problem.TraceID, "span_id=", "trace=full")
	if answer := r.sort(); !strings.HasPrefix(answer, "200") {
		t.Fatal(answer)
	}

	r.doubleFree()
	line(t, lines, "gpu memory finding: ", "kind=double-free", "tag=test.twice")
	line(t, lines, "gpu memory health: degraded", "findings")
	r.stop()
	must(t, <-r.ended)
	must(t, r.close())
	line(t, lines, "gpu memory health: closed")
	for _, l := range lines() {
		if strings.Contains(l, "a request") && !strings.Contains(l, "code=exceeds_budget") {
			t.Errorf("a request that was served, or a second refusal, is in the log: %s", l)
		}
	}
}

// The trace of a request that the head did not sample is in no backend: what the
// log and the answer name is the one span of the refusal.
func TestARefusalThatIsNotSampledLeadsToItsOneSpan(t *testing.T) {
	lines := capture(t)
	spans := tracetest.NewInMemoryExporter()
	r := startWith(t, spans, "-budget=1MiB", "-trace-share=0")
	if answer := r.sort(); !strings.HasPrefix(answer, "200") {
		t.Fatal(answer)
	}
	response, err := http.Post(r.url+"/sort", "application/json", strings.NewReader(`{"keys":[1`+strings.Repeat(",1", 1<<18)+`]}`))
	must(t, err)
	defer response.Body.Close()
	var problem struct {
		TraceID string `json:"trace_id"`
	}
	must(t, json.NewDecoder(response.Body).Decode(&problem))
	must(t, r.traces.provider.ForceFlush(t.Context()))
	got := spans.GetSpans()
	if len(got) != 1 || got[0].Name != "gpumem.refusal" || got[0].SpanContext.TraceID().String() != problem.TraceID {
		t.Fatalf("%d spans %v, the answer names %q", len(got), got, problem.TraceID)
	}
	refused := line(t, lines, "a request was refused", "trace_id="+problem.TraceID, "span_id="+got[0].SpanContext.SpanID().String(), "trace=event")
	if strings.Count(refused, "trace_id=") != 1 {
		t.Errorf("the trace is named twice: %s", refused)
	}
	r.stop()
	must(t, <-r.ended)
	must(t, r.close())
	for _, l := range lines() {
		if strings.Contains(l, "trace_id=") && !strings.Contains(l, problem.TraceID) {
			t.Errorf("a trace that nobody has: %s", l)
		}
	}
}

func (r *running) doubleFree() {
	r.t.Helper()
	block, err := r.rt.Allocate(r.t.Context(), core.Request{Bytes: 512, Tag: "test.twice"})
	must(r.t, err)
	_, err = r.rt.Deallocate(r.t.Context(), block.ID)
	must(r.t, err)
	if _, err = r.rt.Deallocate(r.t.Context(), block.ID); err == nil {
		r.t.Fatal("freed twice")
	}
}
