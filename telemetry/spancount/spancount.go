// Package spancount counts what becomes of spans. OpenTelemetry's batch
// processor drops spans silently when its queue is full; counting in front of
// it and behind it makes the loss visible:
//
//	var counter spancount.Counter
//	batch := sdktrace.NewBatchSpanProcessor(counter.Exporter(exporter))
//	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(counter.Processor(batch)))
//
// While spans flow, ended less exported is both what is queued and what was
// dropped, and the SDK tells nobody which. A flush empties the queue: what
// had ended before it and has come out on neither side is dropped.
package spancount

import (
	"context"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost/telemetry"
)

// Counter counts the sampled spans of one pipeline: one processor and the
// exporter behind it. The zero Counter is ready to use. It is safe for
// concurrent use and must not be copied.
type Counter struct {
	started, ended, exported, failed, dropped atomic.Uint64
}

// Counts is a snapshot. Started, Ended, Exported and Failed are exact each;
// Dropped is exact after a flush with no span under way, and at other times
// lags behind but never runs ahead.
func (c *Counter) Counts() telemetry.SpanCounts {
	counts := telemetry.SpanCounts{
		Exported: c.exported.Load(), Failed: c.failed.Load(), Dropped: c.dropped.Load(),
	}
	// A span is counted as ended after it was queued, so it may have come
	// out first; what came out has ended.
	counts.Ended = max(c.ended.Load(), counts.Exported+counts.Failed+counts.Dropped)
	counts.Started = c.started.Load()
	return counts
}

// settle learns what was dropped, after everything of the first ended spans
// that was queued has come out. Spans that ended later may have come out
// too, which makes this an underestimate.
func (c *Counter) settle(ended uint64) {
	for {
		known := c.dropped.Load()
		out := c.exported.Load() + c.failed.Load()
		if ended <= out+known || c.dropped.CompareAndSwap(known, ended-out) {
			return
		}
	}
}

// Processor returns next with counting in front. The provider must be given
// the result, not next. Flushing or shutting down blocks as next does.
func (c *Counter) Processor(next sdktrace.SpanProcessor) sdktrace.SpanProcessor {
	return &processor{counter: c, next: next}
}

type processor struct {
	counter *Counter
	next    sdktrace.SpanProcessor
}

func (p *processor) OnStart(ctx context.Context, s sdktrace.ReadWriteSpan) {
	if s.SpanContext().IsSampled() {
		p.counter.started.Add(1)
	}
	p.next.OnStart(ctx, s)
}

// OnEnd queues the span before it counts it: whoever reads the count and then
// flushes knows that all of those spans were in front of the flush.
func (p *processor) OnEnd(s sdktrace.ReadOnlySpan) {
	p.next.OnEnd(s)
	if s.SpanContext().IsSampled() {
		p.counter.ended.Add(1)
	}
}

func (p *processor) ForceFlush(ctx context.Context) error {
	return p.settled(func() error { return p.next.ForceFlush(ctx) })
}

func (p *processor) Shutdown(ctx context.Context) error {
	return p.settled(func() error { return p.next.Shutdown(ctx) })
}

// settled empties the queue. If that fails, spans may still be in it, and
// nothing is learnt.
func (p *processor) settled(empty func() error) error {
	ended := p.counter.ended.Load()
	if err := empty(); err != nil {
		return err
	}
	p.counter.settle(ended)
	return nil
}

// Exporter returns next with counting behind the queue. A batch that next
// fails counts as failed whole.
func (c *Counter) Exporter(next sdktrace.SpanExporter) sdktrace.SpanExporter {
	return &exporter{counter: c, next: next}
}

type exporter struct {
	counter *Counter
	next    sdktrace.SpanExporter
}

func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.next.ExportSpans(ctx, spans)
	if err != nil {
		e.counter.failed.Add(uint64(len(spans)))
		return err
	}
	e.counter.exported.Add(uint64(len(spans)))
	return nil
}

func (e *exporter) Shutdown(ctx context.Context) error { return e.next.Shutdown(ctx) }
