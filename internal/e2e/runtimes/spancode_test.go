package runtimes_test

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// nthCall acts at one of the calls of a kind of the program's code.
type nthCall struct {
	left atomic.Int64
	act  func()
}

func (n *nthCall) called() {
	if n.left.Add(-1) == 0 {
		n.act()
	}
}

// codeContext is a context of the program's.
type codeContext struct {
	context.Context
	code *nthCall
}

func (c codeContext) Value(key any) any     { c.code.called(); return c.Context.Value(key) }
func (c codeContext) Err() error            { c.code.called(); return c.Context.Err() }
func (c codeContext) Done() <-chan struct{} { c.code.called(); return c.Context.Done() }
func (c codeContext) Deadline() (end time.Time, ok bool) {
	c.code.called()
	return c.Context.Deadline()
}

// codeProvider makes spans that are the program's.
type codeProvider struct {
	trace.TracerProvider
	code *nthCall
}

func (p codeProvider) Tracer(name string, o ...trace.TracerOption) trace.Tracer {
	return codeTracer{p.TracerProvider.Tracer(name, o...), p.code}
}

type codeTracer struct {
	trace.Tracer
	code *nthCall
}

//nolint:spancheck // the caller ends it
func (p codeTracer) Start(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	inside, span := p.Tracer.Start(ctx, name, o...)
	own := codeSpan{span, p.code}
	return trace.ContextWithSpan(inside, own), own
}

type codeSpan struct {
	trace.Span
	code *nthCall
}

func (s codeSpan) SpanContext() trace.SpanContext { s.code.called(); return s.Span.SpanContext() }
func (s codeSpan) IsRecording() bool              { s.code.called(); return s.Span.IsRecording() }

// A context may be a type of the program's, and so may a span. Whichever call of theirs panics or
// ends the goroutine: no block, stream, reservation or intent is lost, and the next job works.
func TestAContextOrASpanMayPanicAtAnyCall(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // which is told of the panics
	defer slog.SetDefault(before)
	for _, backend := range e2e.Backends() {
		for act, do := range map[string]func(){"panics": func() { panic("the program's bug") }, "exits": runtime.Goexit} {
			for _, layered := range []bool{false, true} {
				name := string(backend) + "/" + act
				if layered {
					name += "/with a layer"
				}
				t.Run(name, func(t *testing.T) {
					var inContext, inSpan nthCall
					inContext.act, inSpan.act = do, do
					cfg := fencepost.Config{Resource: backend, Guard: "hunt", Streams: 2, TracerProvider: codeProvider{
						sdktrace.NewTracerProvider(), &inSpan}}
					if layered {
						cfg.Layers.AroundGuard = new(userCode).layer("around the guard")
						cfg.Layers.AroundBudget = new(userCode).layer("around the budget")
					}
					rt := e2e.OpenDirty(t, cfg)
					k := loadAdd(t, rt)
					job := func(ctx context.Context) error {
						return rt.Do(ctx, "job", func(j *fencepost.Job) error {
							if _, err := addOn(j, k, []uint32{1, 2, 3}, 40); err != nil {
								return err
							}
							f, err := j.Fork()
							if err != nil {
								return err
							}
							return e2e.ErrorOf(fencepost.Alloc[byte](f, 64))
						}, fencepost.Reserve(1<<20, time.Second))
					}
					for what, code := range map[string]*nthCall{"context": &inContext, "span": &inSpan} {
						nth := int64(1)
						for ; ; nth++ {
							code.left.Store(nth)
							ended := make(chan struct{})
							go func() {
								defer close(ended)
								defer func() { _ = recover() }()
								_ = job(codeContext{context.Background(), &inContext})
							}()
							<-ended
							if code.left.Swap(0) > 0 {
								break
							}
							e2e.Succeed(t, "draining", rt.Drain(t.Context()))
							nothingIsHeld(t, rt)
							e2e.Succeed(t, "the next job", job(t.Context()))
							if t.Failed() {
								t.Fatalf("after call %d of the %s", nth, what)
							}
						}
						if nth < 5 {
							t.Errorf("a job calls its %s %d times only", what, nth)
						}
					}
					e2e.Succeed(t, "closing", e2e.ErrorOf(rt.Close(t.Context())))
				})
			}
		}
	}
}
