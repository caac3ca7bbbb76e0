package spanpipe_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
	"github.com/fencepost-gpu/fencepost/telemetry/spanpipe"
)

// sdkDefault is what the SDK's processor has if nobody says anything else.
var sdkDefault = spanpipe.Config{Queue: sdktrace.DefaultMaxQueueSize, Batch: sdktrace.DefaultMaxExportBatchSize}

// gate is an exporter that holds batches back until it is opened.
type gate struct {
	open    chan struct{}
	entered chan struct{}
	once    sync.Once
	err     error
	took    atomic.Uint64
}

func newGate() *gate { return &gate{open: make(chan struct{}), entered: make(chan struct{})} }

func opened(err error) *gate {
	g := newGate()
	g.err = err
	close(g.open)
	return g
}

func (g *gate) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	g.once.Do(func() { close(g.entered) })
	select {
	case <-g.open:
		g.took.Add(uint64(len(spans)))
		return g.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) Shutdown(context.Context) error { return nil }

func pipeline(exporter sdktrace.SpanExporter, cfg spanpipe.Config, options ...sdktrace.TracerProviderOption) (*spanpipe.Pipe, *sdktrace.TracerProvider) {
	pipe := spanpipe.New(exporter, cfg)
	return pipe, sdktrace.NewTracerProvider(append(options, sdktrace.WithSpanProcessor(pipe))...)
}

func spans(provider trace.TracerProvider, n int) {
	tracer := provider.Tracer("test")
	for range n {
		_, span := tracer.Start(context.Background(), "span")
		span.End()
	}
}

func wantCounts(t *testing.T, pipe *spanpipe.Pipe, want metrics.SpanCounts) {
	t.Helper()
	if got := pipe.Counts(); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

// The exporter is held while a burst ends. What the SDK's own sizes have no
// room for is lost, and known to be without a flush; the shipped sizes lose
// none of it.
func TestABurstBehindAStuckExporter(t *testing.T) {
	const burst = 50_000
	for name, c := range map[string]struct {
		config spanpipe.Config
		lost   uint64
	}{
		"the SDK's sizes":   {sdkDefault, burst - sdktrace.DefaultMaxQueueSize},
		"the shipped sizes": {spanpipe.Config{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			exporter := newGate()
			pipe, provider := pipeline(exporter, c.config)
			spans(provider, burst)
			wantCounts(t, pipe, metrics.SpanCounts{Started: burst, Ended: burst, Dropped: c.lost})
			if n := pipe.Counts().Unexported(); n != burst-c.lost {
				t.Errorf("%d are inFlight, want %d", n, burst-c.lost)
			}
			close(exporter.open)
			must.Do(t, provider.Shutdown(context.Background()))
			wantCounts(t, pipe, metrics.SpanCounts{Started: burst, Ended: burst, Exported: burst - c.lost, Dropped: c.lost})
			if got := exporter.took.Load(); got != burst-c.lost {
				t.Errorf("the exporter got %d", got)
			}
		})
	}
}

// slow is an exporter that takes a batch for as long as four more of that size
// take to come, as a collector that is far away or busy does; with the end of the
// work it has time. By the clock a busy machine would make spans as slowly.
type slow struct {
	came func() uint64
	idle atomic.Bool // no more come
	took atomic.Uint64
}

func (s *slow) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for until := s.came() + 4*uint64(len(spans)); s.came() < until && !s.idle.Load(); {
		time.Sleep(time.Millisecond)
	}
	s.took.Add(uint64(len(spans)))
	return nil
}

func (s *slow) Shutdown(context.Context) error { return nil }

// Behind a slow exporter the SDK's sizes lose spans, and the count of them is
// exact; the shipped sizes lose none.
func TestASlowExporter(t *testing.T) {
	const total = 60_000
	for name, c := range map[string]struct {
		config spanpipe.Config
		loses  bool
	}{"the SDK's sizes": {sdkDefault, true}, "the shipped sizes": {spanpipe.Config{}, false}} {
		t.Run(name, func(t *testing.T) {
			exporter := &slow{}
			pipe, provider := pipeline(exporter, c.config)
			exporter.came = func() uint64 { return pipe.Counts().Ended }
			spans(provider, total)
			exporter.idle.Store(true)
			must.Do(t, provider.Shutdown(context.Background()))
			counts := pipe.Counts()
			if counts.Ended != total || counts.Exported != exporter.took.Load() || counts.Dropped != total-exporter.took.Load() || counts.Unexported() != 0 {
				t.Errorf("%+v, the exporter got %d", counts, exporter.took.Load())
			}
			if (counts.Dropped > 0) != c.loses {
				t.Errorf("%d of %d were dropped", counts.Dropped, total)
			}
			t.Logf("%d of %d were dropped", counts.Dropped, total)
		})
	}
}

// What the exporter fails is failed, not dropped, and makes room.
func TestFailedBatchesAreCounted(t *testing.T) {
	pipe, provider := pipeline(opened(errors.New("no collector")), spanpipe.Config{Queue: 1})
	for range 3 {
		spans(provider, 1)
		_ = provider.ForceFlush(context.Background()) // says that there is no collector
	}
	must.Do(t, provider.Shutdown(context.Background()))
	wantCounts(t, pipe, metrics.SpanCounts{Started: 3, Ended: 3, Failed: 3})
}

// Flushes that nobody waits for any more leave their marks in the processor's
// queue, which must not push out a span.
func TestFlushesCutShortLoseNothing(t *testing.T) {
	exporter := newGate()
	pipe, provider := pipeline(exporter, spanpipe.Config{Queue: 8, Batch: 1})
	spans(provider, 1)
	<-exporter.entered
	for range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Microsecond)
		if err := provider.ForceFlush(ctx); err == nil {
			t.Error("a flush went past an exporter that is inFlight")
		}
		cancel()
	}
	spans(provider, 7)
	wantCounts(t, pipe, metrics.SpanCounts{Started: 8, Ended: 8})
	close(exporter.open)
	must.Do(t, provider.ForceFlush(context.Background()))
	wantCounts(t, pipe, metrics.SpanCounts{Started: 8, Ended: 8, Exported: 8})
	must.Do(t, provider.Shutdown(context.Background()))
}

func TestSpansAfterTheEndAreDropped(t *testing.T) {
	exporter := opened(nil)
	pipe := spanpipe.New(exporter, spanpipe.Config{})
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(pipe))
	_, late := provider.Tracer("test").Start(context.Background(), "late")
	must.Do(t, pipe.Shutdown(context.Background()))
	late.End()
	wantCounts(t, pipe, metrics.SpanCounts{Started: 1, Ended: 1, Dropped: 1})
	must.Do(t, provider.Shutdown(context.Background()))
}

// stubborn is an exporter that keeps to no context, and fails to shut down.
type stubborn struct {
	*gate
	down chan struct{}
}

func (s *stubborn) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	return s.gate.ExportSpans(context.Background(), spans)
}

func (s *stubborn) Shutdown(context.Context) error {
	close(s.down)
	return errors.New("the connection was closed already")
}

// What is queued when an end is cut short is lost: once, for this reason, and whatever the exporter
// makes of it later.
func TestWhatAnEndCutShortLeavesIsLostOnce(t *testing.T) {
	const queued = 3
	for name, exporter := range map[string]func(*gate) (sdktrace.SpanExporter, <-chan struct{}){
		"it keeps to no context, and succeeds later": func(g *gate) (sdktrace.SpanExporter, <-chan struct{}) {
			s := &stubborn{gate: g, down: make(chan struct{})}
			return s, s.down
		},
		"it keeps to no context, and fails later": func(g *gate) (sdktrace.SpanExporter, <-chan struct{}) {
			g.err = errors.New("no collector")
			s := &stubborn{gate: g, down: make(chan struct{})}
			return s, s.down
		},
		"it never returns": func(g *gate) (sdktrace.SpanExporter, <-chan struct{}) {
			down := make(chan struct{})
			close(down)
			return &stubborn{gate: &gate{open: make(chan struct{}), entered: g.entered}, down: make(chan struct{})}, down
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			out, down := exporter(g)
			pipe, provider := pipeline(out, spanpipe.Config{Batch: 1})
			_, late := provider.Tracer("test").Start(context.Background(), "late")
			spans(provider, queued)
			<-g.entered
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(10*time.Millisecond, cancel) // the provider calls no processor if its context has ended
			if err := provider.Shutdown(ctx); !errors.Is(err, context.Canceled) ||
				!strings.Contains(err.Error(), "3 queued spans are lost") {
				t.Errorf("the end was cut short, and says %v", err)
			}
			wantCounts(t, pipe, metrics.SpanCounts{Started: queued + 1, Ended: queued, Dropped: queued})
			late.End()
			_ = pipe.Shutdown(context.Background()) // is not the first
			close(g.open)
			<-down
			if c := pipe.Counts(); c.Exported != 0 || c.Failed != 0 || c.Dropped != c.Ended {
				t.Errorf("afterwards: %+v", c)
			}
		})
	}
}

// While spans end and the end of the pipe is cut short at any moment, no count falls, and the sums
// are exact.
func TestNoCountFallsWhateverCutsTheEndShort(t *testing.T) {
	for round := range 30 {
		pipe, provider := pipeline(&paced{}, spanpipe.Config{Queue: 64, Batch: 4})
		var workers, watch sync.WaitGroup
		for range 4 {
			workers.Go(func() { spans(provider, 200) })
		}
		over := make(chan struct{})
		watch.Go(func() {
			for before := (metrics.SpanCounts{}); ; {
				now := pipe.Counts()
				if now.Exported < before.Exported || now.Failed < before.Failed || now.Dropped < before.Dropped {
					t.Errorf("%+v after %+v", now, before)
					return
				}
				before = now
				select {
				case <-over:
					return
				default:
				}
			}
		})
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(round)*100*time.Microsecond)
		_ = pipe.Shutdown(ctx)
		cancel()
		workers.Wait()
		if c := pipe.Counts(); c.Ended != 800 || c.Exported+c.Failed+c.Dropped != c.Ended {
			t.Errorf("round %d: %+v", round, c)
		}
		close(over)
		watch.Wait()
	}
}

// paced is an exporter that takes a moment for a batch.
type paced struct{ calls atomic.Uint64 }

func (p *paced) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	time.Sleep(50 * time.Microsecond)
	if p.calls.Add(1)%3 == 0 {
		return errors.New("no collector")
	}
	return nil
}

func (p *paced) Shutdown(context.Context) error { return nil }

// An exporter that fails what is queued at the end makes the end an error.
func TestAFailureAtTheEndIsTold(t *testing.T) {
	pipe, provider := pipeline(opened(errors.New("no collector")), spanpipe.Config{})
	spans(provider, 2)
	if err := provider.Shutdown(context.Background()); err == nil || !strings.Contains(err.Error(), "failed 2 spans") {
		t.Errorf("the end says %v", err)
	}
	wantCounts(t, pipe, metrics.SpanCounts{Started: 2, Ended: 2, Failed: 2})
}

// A span that ends while the pipe ends is dropped, and counted then and there.
func TestASpanThatEndsDuringTheEndIsDroppedAtOnce(t *testing.T) {
	exporter := newGate()
	pipe, provider := pipeline(exporter, spanpipe.Config{Batch: 1})
	_, late := provider.Tracer("test").Start(context.Background(), "late")
	spans(provider, 1)
	<-exporter.entered
	ended := make(chan error, 1)
	go func() { ended <- pipe.Shutdown(context.Background()) }()
	for pipe.Counts().Dropped == 0 {
		_, probe := provider.Tracer("test").Start(context.Background(), "probe")
		probe.End()
		time.Sleep(time.Millisecond)
		if len(ended) > 0 {
			t.Fatal("it ended while the exporter is inFlight")
		}
		if pipe.Counts().Ended > 2000 {
			t.Fatal("2000 spans ended while the pipe ends, and none is known to be dropped")
		}
	}
	before := pipe.Counts().Dropped
	late.End()
	if n := pipe.Counts().Dropped; n != before+1 {
		t.Errorf("%d dropped, want %d", n, before+1)
	}
	close(exporter.open)
	must.Do(t, <-ended)
	if c := pipe.Counts(); c.Ended != c.Exported+c.Dropped {
		t.Errorf("counts %+v", c)
	}
}

func TestAPipeToNobodyDropsAndCounts(t *testing.T) {
	pipe, provider := pipeline(nil, spanpipe.Config{Batch: 1})
	spans(provider, 3)
	must.Do(t, provider.ForceFlush(context.Background()))
	wantCounts(t, pipe, metrics.SpanCounts{Started: 3, Ended: 3, Dropped: 3})
	must.Do(t, provider.Shutdown(context.Background()))
}

func TestUnsampledSpansAreNotCounted(t *testing.T) {
	pipe, provider := pipeline(opened(nil), spanpipe.Config{}, sdktrace.WithSampler(recordOnly{}))
	spans(provider, 3)
	must.Do(t, provider.Shutdown(context.Background()))
	wantCounts(t, pipe, metrics.SpanCounts{})
}

type recordOnly struct{}

func (recordOnly) ShouldSample(sdktrace.SamplingParameters) sdktrace.SamplingResult {
	return sdktrace.SamplingResult{Decision: sdktrace.RecordOnly}
}
func (recordOnly) Description() string { return "record only" }

func TestTheStandardVariablesSayTheSizes(t *testing.T) {
	for _, c := range []struct {
		queue, batch string
		config       spanpipe.Config
		holds        uint64
	}{
		{"", "", spanpipe.Config{}, spanpipe.DefaultQueue},
		{"7", "3", spanpipe.Config{}, 7},
		{"7", "3", spanpipe.Config{Queue: 5, Batch: 100}, 5},
		{"many", "-1", spanpipe.Config{Queue: -1}, spanpipe.DefaultQueue},
	} {
		t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", c.queue)
		t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", c.batch)
		exporter := newGate()
		pipe, provider := pipeline(exporter, c.config)
		spans(provider, int(c.holds)+100)
		if got := pipe.Counts().Unexported(); got != c.holds {
			t.Errorf("%+v: %d are inFlight", c, got)
		}
		close(exporter.open)
		must.Do(t, provider.Shutdown(context.Background()))
	}
}

// Under load from many goroutines, with flushes between and a queue that is too
// small, every span is accounted for once and none twice.
func TestHammer(t *testing.T) {
	exporter := opened(nil)
	pipe, provider := pipeline(exporter, spanpipe.Config{Queue: 16, Batch: 4})
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for range 20 {
				spans(provider, 50)
				expect.Success(t, provider.ForceFlush(context.Background()))
				if counts := pipe.Counts(); counts.Exported+counts.Failed+counts.Dropped > counts.Ended || counts.Ended > counts.Started {
					t.Errorf("more came out than went in: %+v", counts)
				}
			}
		})
	}
	workers.Wait()
	must.Do(t, provider.Shutdown(context.Background()))
	counts := pipe.Counts()
	if counts.Ended != 4000 || counts.Started != 4000 || counts.Exported != exporter.took.Load() || counts.Exported+counts.Dropped != 4000 {
		t.Errorf("counts %+v do not add up to 4000, the exporter got %d", counts, exporter.took.Load())
	}
}

// Spans of before and of after, of providers of their own, and of one that knows.
func TestTheResourceSaysWhichGPUItIs(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	pipe := spanpipe.New(exporter, spanpipe.Config{})
	provider := func(about ...attribute.KeyValue) *sdktrace.TracerProvider {
		return sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(pipe), sdktrace.WithResource(resource.NewSchemaless(about...)))
	}
	service, other, knows := provider(semconv.ServiceName("service")), provider(semconv.ServiceName("other")), provider(semconv.HwID("own"))
	spans(service, 1)
	must.Do(t, pipe.ForceFlush(t.Context()))
	pipe.IdentifyGPU("GPU-1")
	pipe.IdentifyGPU("")
	for _, p := range []*sdktrace.TracerProvider{service, service, other, knows} {
		spans(p, 1)
	}
	must.Do(t, pipe.ForceFlush(t.Context()))
	var got []string
	for _, s := range exporter.GetSpans() {
		got = append(got, s.Resource.Encoded(attribute.DefaultEncoder()))
	}
	if want := []string{"service.name=service", "hw.id=GPU-1,service.name=service", "hw.id=GPU-1,service.name=service", "hw.id=GPU-1,service.name=other", "hw.id=own"}; !slices.Equal(got, want) {
		t.Errorf("the resources are %q, want %q", got, want)
	}
	must.Do(t, pipe.Shutdown(t.Context()))
}

// unruly is an exporter that does not return from every second call.
type unruly struct {
	calls, exported int
	exits           bool
}

func (u *unruly) call() error {
	if u.calls++; u.calls%2 == 0 {
		return nil
	}
	if u.exits {
		runtime.Goexit()
	}
	panic("the exporter's bug")
}

func (u *unruly) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := u.call()
	u.exported += len(spans)
	return err
}

func (u *unruly) Shutdown(context.Context) error { return u.call() }

// An exporter that panics or ends the goroutine costs the batch that it was given, and the next is
// exported.
func TestAnExporterThatDoesNotReturnCostsItsBatch(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // which is told of the panics
	defer slog.SetDefault(before)
	for _, exits := range []bool{false, true} {
		exporter := &unruly{exits: exits}
		pipe, provider := pipeline(exporter, spanpipe.Config{Batch: 1})
		const n = 10
		for range n {
			spans(provider, 1)
			_ = provider.ForceFlush(context.Background())
		}
		if err := provider.Shutdown(context.Background()); err == nil {
			t.Errorf("exits %v: an exporter that did not return from Shutdown succeeded", exits)
		}
		wantCounts(t, pipe, metrics.SpanCounts{Started: n, Ended: n, Exported: n / 2, Failed: n / 2})
		if exporter.exported != n/2 {
			t.Errorf("exits %v: %d were exported", exits, exporter.exported)
		}
	}
}
