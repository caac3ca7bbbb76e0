// Package spanpipe is the way of spans out of a process: a bounded queue, a
// batch, an exporter, and a count of what became of every span.
//
//	pipe := spanpipe.New(exporter, spanpipe.Config{})
//	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(pipe))
//
// OpenTelemetry's batch processor does the work. By default its queue takes
// 2048 spans, and what does not fit is dropped without a word; a launch of a
// few blocks is ten spans, so a busy second fills that many times. A [Pipe] has
// a queue that is large enough for [DefaultQueue] spans, never makes the work
// wait, and drops by its own count, so that a drop is known at once and
// exactly.
package spanpipe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/fencepost-gpu/fencepost/internal/usercode"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// flushRoom is what the processor's own queue has beyond ours. A flush puts a
// mark into that queue, which stays there if no caller waits for it any more;
// without room for marks the processor would drop a span that we admitted.
const flushRoom = 256

// Pipe is a span processor that queues sampled spans for one exporter. It is
// safe for concurrent use. Ending a span never blocks on it.
type Pipe struct {
	next     sdktrace.SpanProcessor
	out      counted
	capacity int64

	started, ended, dropped atomic.Uint64
	// stopped is set when no more spans are admitted.
	stopped atomic.Bool
}

var _ sdktrace.SpanProcessor = (*Pipe)(nil)

// New returns a pipe to exporter, which runs a goroutine until Shutdown. The
// exporter is called by one goroutine at a time and is shut down with the pipe.
// A pipe to nil drops every span, and counts it.
func New(exporter sdktrace.SpanExporter, cfg Config) *Pipe {
	cfg = cfg.withDefaults()
	p := &Pipe{capacity: int64(cfg.Queue)}
	if exporter == nil {
		p.stopped.Store(true)
		p.next = sdktrace.NewBatchSpanProcessor(nil)
		return p
	}
	p.out.next = exporter
	p.next = sdktrace.NewBatchSpanProcessor(&p.out,
		sdktrace.WithMaxQueueSize(cfg.Queue+flushRoom), sdktrace.WithMaxExportBatchSize(cfg.Batch))
	return p
}

// IdentifyGPU adds the attribute hw.id, with a GPU's UUID as driver.Properties has
// it, to the resource of the spans that are exported from now on; a resource that
// has one keeps it, and an empty UUID adds nothing. It is for processes with one GPU: its identity is known when
// the runtime is open, and a provider is given its resource before. It does not block.
func (p *Pipe) IdentifyGPU(uuid string) {
	if uuid != "" {
		p.out.identity.Store(resource.NewSchemaless(semconv.HwID(uuid)))
	}
}

// Counts is what became of the spans so far. No count ever falls. Exported, Failed and Dropped are
// exact: a span that was queued when the pipe ended, or when an end was cut short, is Dropped,
// whatever the exporter makes of it later. It does not block on the exporter.
func (p *Pipe) Counts() metrics.SpanCounts {
	counts := p.out.counts()
	counts.Dropped += p.dropped.Load()
	// In this order, so that no more come out than went in.
	counts.Ended = p.ended.Load()
	counts.Started = p.started.Load()
	return counts
}

// OnStart counts the span.
func (p *Pipe) OnStart(ctx context.Context, s sdktrace.ReadWriteSpan) {
	if s.SpanContext().IsSampled() {
		p.started.Add(1)
	}
	p.next.OnStart(ctx, s)
}

// OnEnd queues the span, or drops and counts it if the queue is full. The
// processor's queue is larger, so what is admitted here is never dropped there.
func (p *Pipe) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	p.ended.Add(1)
	if p.stopped.Load() {
		p.dropped.Add(1)
		return
	}
	if !p.out.admit(p.capacity) {
		p.dropped.Add(1)
		return
	}
	p.next.OnEnd(s)
}

// ForceFlush exports what is queued. It blocks until that is done or ctx ends.
func (p *Pipe) ForceFlush(ctx context.Context) error { return p.next.ForceFlush(ctx) }

// Shutdown exports what is queued and ends the pipe. It blocks until that is done or ctx ends.
// Spans that end from now on are dropped. If ctx ends first, the spans that are queued or being
// exported are counted as dropped, and the error says how many they are. The exporter still gets
// them, but they are not counted again. A second Shutdown does nothing.
func (p *Pipe) Shutdown(ctx context.Context) error {
	p.stopped.Store(true)
	failed := p.out.counts().Failed
	err := p.next.Shutdown(ctx)
	lost := p.out.end()
	if failed = p.out.counts().Failed - failed; failed > 0 {
		err = errors.Join(err, fmt.Errorf("spanpipe: the exporter failed %d spans at the end", failed))
	}
	if lost > 0 {
		err = errors.Join(err, fmt.Errorf("spanpipe: the end was cut short, and %d queued spans are lost: give Shutdown more time", lost))
	}
	return err
}

// counted is the exporter, with counting in front.
type counted struct {
	next sdktrace.SpanExporter
	// inFlight is how many spans are queued or being exported. Once ended is set it only grows, and
	// they are lost.
	inFlight atomic.Int64
	// identity is the GPU's, or nil.
	identity atomic.Pointer[resource.Resource]

	mu               sync.Mutex // of what follows, and of each batch that leaves inFlight
	exported, failed uint64
	// ended is set when those in flight count as lost: the last batch was exported, or no caller
	// waits for it any more.
	ended bool
}

// admit counts a span that is about to be queued, and reports false if so many are in flight.
func (c *counted) admit(most int64) bool {
	for n := c.inFlight.Load(); n < most; n = c.inFlight.Load() {
		if c.inFlight.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// counts is what became of the spans that were queued.
func (c *counted) counts() metrics.SpanCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := metrics.SpanCounts{Exported: c.exported, Failed: c.failed}
	if c.ended {
		counts.Dropped = uint64(c.inFlight.Load())
	}
	return counts
}

// end makes those in flight lost, and returns how many they are.
func (c *counted) end() uint64 {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	return c.counts().Dropped
}

// came counts a batch, unless its spans are lost already.
func (c *counted) came(spans int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	if err != nil {
		c.failed += uint64(spans)
	} else {
		c.exported += uint64(spans)
	}
	c.inFlight.Add(-int64(spans))
}

// identified is a span whose resource says which GPU it is about.
type identified struct {
	sdktrace.ReadOnlySpan
	about *resource.Resource
}

func (s identified) Resource() *resource.Resource { return s.about }

// identify gives the spans the identity. Those of one provider share their resource.
func identify(spans []sdktrace.ReadOnlySpan, identity *resource.Resource) []sdktrace.ReadOnlySpan {
	all, abouts := make([]sdktrace.ReadOnlySpan, len(spans)), map[*resource.Resource]*resource.Resource{}
	for i, s := range spans {
		own := s.Resource()
		if abouts[own] == nil {
			abouts[own], _ = resource.Merge(identity, own) // fails for two schemas only, and one has none
		}
		all[i] = identified{s, abouts[own]}
	}
	return all
}

// ExportSpans counts the batch as exported or, if next fails or does not return, as failed whole.
func (c *counted) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	n := len(spans)
	if identity := c.identity.Load(); identity != nil {
		spans = identify(spans, identity)
	}
	err := c.call(func() error { return c.next.ExportSpans(ctx, spans) })
	c.came(n, err)
	return err
}

// Shutdown is called when the last batch was exported: what is in flight now came too late for it.
func (c *counted) Shutdown(ctx context.Context) error {
	c.end()
	return c.call(func() error { return c.next.Shutdown(ctx) })
}

// errNoReturn is the error of an exporter that did not return.
var errNoReturn = errors.New("spanpipe: the exporter panicked, or called runtime.Goexit")

// call calls the exporter, on a goroutine of its own, which the exporter may end: the processor has
// one for all batches.
func (c *counted) call(f func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errNoReturn
		defer func() { done <- err }()
		usercode.Call("the span exporter", func() { err = f() })
	}()
	return <-done
}
