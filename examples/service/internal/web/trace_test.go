package web_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

var update = flag.Bool("update", false, "write the golden traces")

// shown are the attributes that a golden trace has beside the names of its spans, in their order.
var shown = []attribute.Key{"http.request.method", "http.route", "http.response.status_code", "service.reserve.bytes",
	telemetry.AttrCopyBytes, telemetry.AttrPeakRequested, telemetry.AttrReserved, telemetry.AttrLaunches, telemetry.AttrStream, telemetry.AttrGeneration, telemetry.AttrTag, telemetry.AttrRequested, telemetry.AttrAccess,
	telemetry.AttrState, telemetry.AttrWaitsQueued, telemetry.AttrCrossStream, telemetry.AttrOutcome, telemetry.AttrErrorType}

// tree renders spans as a tree. Streams and generations are numbered as they
// come, so that the text is the same each time.
type tree struct {
	spans    []tracetest.SpanStub // in the order of their ends
	numbered map[string]string
	names    map[trace.SpanID]string
	text     strings.Builder
}

func (tr *tree) number(kind string, v attribute.Value) string {
	key := kind + v.String()
	if tr.numbered[key] == "" {
		n := 1
		for k := range tr.numbered {
			if strings.HasPrefix(k, kind) {
				n++
			}
		}
		tr.numbered[key] = fmt.Sprintf("%s%d", kind, n)
	}
	return tr.numbered[key]
}

func (tr *tree) render(parent trace.SpanID, depth int) {
	var children []tracetest.SpanStub
	for _, s := range tr.spans {
		if s.Parent.SpanID() == parent {
			children = append(children, s)
		}
	}
	slices.SortStableFunc(children, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	for _, s := range children {
		tr.line(s, depth)
		tr.render(s.SpanContext.SpanID(), depth+1)
	}
}

func (tr *tree) line(s tracetest.SpanStub, depth int) {
	fmt.Fprintf(&tr.text, "%s%s", strings.Repeat("  ", depth), s.Name)
	values := map[attribute.Key]attribute.Value{}
	for _, kv := range s.Attributes {
		values[kv.Key] = kv.Value
	}
	name := s.Name
	for _, key := range shown {
		v, ok := values[key]
		if !ok {
			continue
		}
		short := string(key[strings.LastIndex(string(key), ".")+1:])
		switch key {
		case telemetry.AttrStream:
			fmt.Fprintf(&tr.text, " on %s", tr.number("stream", v))
		case telemetry.AttrGeneration:
			name = tr.number("block", v) + " " + name
			fmt.Fprintf(&tr.text, " of %s", tr.number("block", v))
		default:
			fmt.Fprintf(&tr.text, " %s=%s", short, v.String())
		}
	}
	tr.names[s.SpanContext.SpanID()] = name
	for _, l := range s.Links {
		fmt.Fprintf(&tr.text, " -> %s", tr.names[l.SpanContext.SpanID()])
	}
	if s.Status.Description != "" {
		fmt.Fprintf(&tr.text, " error: %s", s.Status.Description)
	}
	tr.text.WriteString("\n")
}

// golden compares the service's one trace with the file.
func (s *service) golden(file string) {
	s.Helper()
	must(s.T, s.web.Wait(s.Context()))
	must(s.T, s.sim.Synchronize())
	must(s.T, s.rt.Drain(s.Context())) // sees what the device has done
	tr := &tree{spans: s.spans.GetSpans(), numbered: map[string]string{}, names: map[trace.SpanID]string{}}
	for _, span := range tr.spans {
		if span.SpanContext.TraceID() != tr.spans[0].SpanContext.TraceID() {
			s.Errorf("%s is in another trace", span.Name)
		}
	}
	tr.render(trace.SpanID{}, 0)
	if lines := strings.Count(tr.text.String(), "\n"); lines != len(tr.spans) {
		s.Errorf("%d of %d spans hang under the request's", lines, len(tr.spans))
	}
	path := filepath.Join("testdata", file)
	if *update {
		must(s.T, os.MkdirAll("testdata", 0o750))
		must(s.T, os.WriteFile(path, []byte(tr.text.String()), 0o600))
	}
	want, err := os.ReadFile(path)
	must(s.T, err)
	if diff := gocmp.Diff(string(want), tr.text.String()); diff != "" {
		s.Errorf("the trace is not that of %s (-want +got):\n%s", path, diff)
	}
}

// repeatable is a stack that does the same each time.
func repeatable(t *testing.T, budget uint64) *service {
	t.Helper()
	return start(t, setup{schedule: sim.Seeded(1), stack: fencepost.Config{Guard: "off", Budget: budget, Async: cuda.AsyncConfig{ReapInterval: -1}}})
}

func TestGoldenTraceOfASort(t *testing.T) {
	s := repeatable(t, 0)
	if a := s.post(api.RouteSort, `{"keys":[3,1,2]}`); string(a.body) != "{\"keys\":[1,2,3]}\n" {
		t.Fatalf("%s", a.body)
	}
	s.golden("sort.trace")
}

// The join's probe waits for the other stream, and the wait is a link to the
// launch that built the table.
func TestGoldenTraceOfAJoin(t *testing.T) {
	s := repeatable(t, 0)
	if a := s.post(api.RouteJoin, `{"left":[7,8],"right_keys":[8],"right_values":[80]}`); string(a.body) != "{\"values\":[null,80]}\n" {
		t.Fatalf("%s", a.body)
	}
	s.golden("join.trace")
}

func TestGoldenTraceOfARefusal(t *testing.T) {
	s := repeatable(t, 1000)
	if a := s.post(api.RouteSort, `{"keys":[3,1,2]}`); a.status != 413 {
		t.Fatalf("%s", a.body)
	}
	s.golden("refusal.trace")
}
