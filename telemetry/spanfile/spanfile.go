// Package spanfile writes OpenTelemetry spans as JSON lines, one span a line,
// for looking at traces without a collector.
package spanfile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// ErrShutdown is returned for spans that come after [Exporter.Shutdown].
var ErrShutdown = errors.New("spanfile: the exporter was shut down")

// Span is one line of the file.
type Span struct {
	Name string `json:"name"`
	// TraceID, SpanID and ParentID are in lower-case hexadecimal; ParentID
	// is absent from a root.
	TraceID  string `json:"trace_id"`
	SpanID   string `json:"span_id"`
	ParentID string `json:"parent_id,omitempty"`
	// Start and End are nanoseconds since 1970.
	Start int64 `json:"start"`
	End   int64 `json:"end"`
	// Attributes holds bools, numbers, strings, and arrays of bools, integers
	// and strings. Everything else, such as NaN, is written as text.
	Attributes map[string]any `json:"attributes,omitempty"`
	Links      []Link         `json:"links,omitempty"`
	Status     Status         `json:"status"`
}

// Link is a link to another span.
type Link struct {
	TraceID    string         `json:"trace_id"`
	SpanID     string         `json:"span_id"`
	Attributes map[string]any `json:"attributes,omitempty"`
}

// Status is the outcome of a span: "Unset", "Ok" or "Error".
type Status struct {
	Code        string `json:"code"`
	Description string `json:"description,omitempty"`
}

// Exporter writes spans to a writer. It is safe for concurrent use and blocks
// as the writer does; put a batch processor in front of it.
type Exporter struct {
	mu   sync.Mutex
	w    io.Writer
	down bool
}

var _ sdktrace.SpanExporter = (*Exporter)(nil)

// New returns an exporter to w. Each batch is one Write of whole lines. The
// exporter does not close w.
func New(w io.Writer) *Exporter { return &Exporter{w: w} }

// ExportSpans writes spans. An error of the writer is returned; the lines of
// the batch may then be incomplete.
func (e *Exporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false)
	for _, s := range spans {
		if err := encoder.Encode(lineOf(s)); err != nil {
			return fmt.Errorf("spanfile: span %q: %w", s.Name(), err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down {
		return ErrShutdown
	}
	if _, err := e.w.Write(lines.Bytes()); err != nil {
		return fmt.Errorf("spanfile: %w", err)
	}
	return nil
}

// Shutdown refuses further spans. There is nothing to flush.
func (e *Exporter) Shutdown(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = true
	return nil
}

func lineOf(s sdktrace.ReadOnlySpan) Span {
	line := Span{
		Name:       s.Name(),
		TraceID:    s.SpanContext().TraceID().String(),
		SpanID:     s.SpanContext().SpanID().String(),
		Start:      s.StartTime().UnixNano(),
		End:        s.EndTime().UnixNano(),
		Attributes: attributes(s.Attributes()),
		Links:      links(s.Links()),
		Status:     Status{Code: s.Status().Code.String(), Description: s.Status().Description},
	}
	if parent := s.Parent(); parent.SpanID() != (trace.SpanID{}) {
		line.ParentID = parent.SpanID().String()
	}
	return line
}

func links(from []sdktrace.Link) []Link {
	var to []Link
	for _, l := range from {
		to = append(to, Link{
			TraceID:    l.SpanContext.TraceID().String(),
			SpanID:     l.SpanContext.SpanID().String(),
			Attributes: attributes(l.Attributes),
		})
	}
	return to
}

func attributes(from []attribute.KeyValue) map[string]any {
	if len(from) == 0 {
		return nil
	}
	to := make(map[string]any, len(from))
	for _, kv := range from {
		to[string(kv.Key)] = plain(kv.Value)
	}
	return to
}

// plain is the value as JSON can write it.
func plain(v attribute.Value) any {
	switch v.Type() {
	case attribute.BOOL, attribute.INT64, attribute.STRING,
		attribute.BOOLSLICE, attribute.INT64SLICE, attribute.STRINGSLICE:
		return v.AsInterface()
	case attribute.FLOAT64:
		if finite(v.AsFloat64()) {
			return v.AsFloat64()
		}
	}
	return v.String()
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
