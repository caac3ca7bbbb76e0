package spancount_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/spancount"
)

// gate is an exporter that holds batches back until it is opened.
type gate struct {
	open    chan struct{}
	entered chan struct{}
	once    sync.Once
	err     error
}

func newGate() *gate { return &gate{open: make(chan struct{}), entered: make(chan struct{})} }

func (g *gate) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	g.once.Do(func() { close(g.entered) })
	select {
	case <-g.open:
		return g.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) Shutdown(context.Context) error { return nil }

// pipeline is a provider with a queue of two spans in front of exporter.
func pipeline(c *spancount.Counter, exporter sdktrace.SpanExporter, options ...sdktrace.TracerProviderOption) *sdktrace.TracerProvider {
	batch := sdktrace.NewBatchSpanProcessor(c.Exporter(exporter), sdktrace.WithMaxQueueSize(2), sdktrace.WithMaxExportBatchSize(1))
	return sdktrace.NewTracerProvider(append(options, sdktrace.WithSpanProcessor(c.Processor(batch)))...)
}

func spans(provider trace.TracerProvider, n int) {
	for range n {
		_, span := provider.Tracer("test").Start(context.Background(), "span")
		span.End()
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCounts(t *testing.T, c *spancount.Counter, want telemetry.SpanCounts) {
	t.Helper()
	if got := c.Counts(); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

// With the exporter held one span is under way and two are queued; the rest
// is lost, which only a flush can tell.
func TestDropsAreSeenAfterAFlush(t *testing.T) {
	var c spancount.Counter
	exporter := newGate()
	provider := pipeline(&c, exporter)
	spans(provider, 1)
	<-exporter.entered
	spans(provider, 9)
	wantCounts(t, &c, telemetry.SpanCounts{Started: 10, Ended: 10})
	if n := c.Counts().Unexported(); n != 10 {
		t.Errorf("%d unexported, want 10", n)
	}
	close(exporter.open)
	check(t, provider.ForceFlush(context.Background()))
	wantCounts(t, &c, telemetry.SpanCounts{Started: 10, Ended: 10, Exported: 3, Dropped: 7})
	if n := c.Counts().Unexported(); n != 0 {
		t.Errorf("%d unexported after a flush", n)
	}
	check(t, provider.ForceFlush(context.Background()))
	spans(provider, 1)
	check(t, provider.Shutdown(context.Background()))
	wantCounts(t, &c, telemetry.SpanCounts{Started: 11, Ended: 11, Exported: 4, Dropped: 7})
}

// What the exporter fails is failed, not dropped.
func TestFailedBatchesAreCounted(t *testing.T) {
	var c spancount.Counter
	exporter := newGate()
	exporter.err = errors.New("no collector")
	close(exporter.open)
	provider := pipeline(&c, exporter)
	spans(provider, 1)
	check(t, provider.Shutdown(context.Background()))
	wantCounts(t, &c, telemetry.SpanCounts{Started: 1, Ended: 1, Failed: 1})
}

// A flush that was cut short tells nothing.
func TestFailedFlushLearnsNothing(t *testing.T) {
	var c spancount.Counter
	exporter := newGate()
	provider := pipeline(&c, exporter)
	spans(provider, 1)
	<-exporter.entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := provider.ForceFlush(ctx); err == nil {
		t.Fatal("a flush with an ended context succeeded")
	}
	wantCounts(t, &c, telemetry.SpanCounts{Started: 1, Ended: 1})
	close(exporter.open)
	check(t, provider.Shutdown(context.Background()))
	wantCounts(t, &c, telemetry.SpanCounts{Started: 1, Ended: 1, Exported: 1})
}

func TestUnsampledSpansAreNotCounted(t *testing.T) {
	var c spancount.Counter
	exporter := newGate()
	close(exporter.open)
	recordOnly := sdktrace.WithSampler(recordOnly{})
	provider := pipeline(&c, exporter, recordOnly)
	spans(provider, 3)
	check(t, provider.Shutdown(context.Background()))
	wantCounts(t, &c, telemetry.SpanCounts{})
}

type recordOnly struct{}

func (recordOnly) ShouldSample(sdktrace.SamplingParameters) sdktrace.SamplingResult {
	return sdktrace.SamplingResult{Decision: sdktrace.RecordOnly}
}
func (recordOnly) Description() string { return "record only" }

// Under load from many goroutines, with flushes between, the counts add up
// and are never ahead of themselves.
func TestHammer(t *testing.T) {
	var c spancount.Counter
	exporter := newGate()
	close(exporter.open)
	provider := pipeline(&c, exporter)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for range 20 {
				spans(provider, 50)
				if err := provider.ForceFlush(context.Background()); err != nil {
					t.Error(err)
				}
				if counts := c.Counts(); counts.Exported+counts.Failed+counts.Dropped > counts.Ended {
					t.Errorf("more came out than went in: %+v", counts)
				}
			}
		})
	}
	workers.Wait()
	check(t, provider.Shutdown(context.Background()))
	counts := c.Counts()
	if counts.Ended != 4000 || counts.Started != 4000 || counts.Exported+counts.Dropped != 4000 {
		t.Errorf("counts %+v do not add up to 4000", counts)
	}
}
