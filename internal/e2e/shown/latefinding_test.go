package shown_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// culprit is a service whose requests corrupt memory.
type culprit struct {
	*testing.T
	rt       *fencepost.Runtime
	recorder *tracetest.SpanRecorder
	stream   *cuda.Lease
	log      *strings.Builder
}

// newCulprit samples as a service does: as whoever calls it.
func newCulprit(t *testing.T, cfg fencepost.Config) *culprit {
	t.Helper()
	c := &culprit{T: t, recorder: tracetest.NewSpanRecorder(), log: new(strings.Builder)}
	cfg.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(c.recorder), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0))))
	cfg.Findings.Logger = slog.New(slog.NewJSONHandler(c.log, nil))
	cfg.Incidents = t.TempDir()
	cfg.Driver = e2e.Blind(t) // the guard's findings are late, and not the oracle's
	c.rt = e2e.OpenDirty(t, cfg)
	c.stream = e2e.Lease(t, c.rt, "s")
	return c
}

// request is one of another process's, which decides whether it is sampled.
func (c *culprit) request(name string, sampled bool) context.Context {
	cfg := trace.SpanContextConfig{SpanID: trace.SpanID{0xab}, Remote: true}
	copy(cfg.TraceID[:], name)
	if sampled {
		cfg.TraceFlags = trace.FlagsSampled
	}
	return trace.ContextWithRemoteSpanContext(c.Context(), trace.NewSpanContext(cfg))
}

func (c *culprit) allocate(ctx context.Context, tag core.Tag) core.Block {
	c.Helper()
	b, err := c.rt.Allocate(ctx, core.Request{Bytes: 1000, Stream: c.stream.ID(), Tag: tag})
	e2e.Succeed(c.T, "allocate", err)
	return b
}

func (c *culprit) free(ctx context.Context, b core.Block) {
	c.Helper()
	_, err := c.rt.Deallocate(ctx, b.ID)
	e2e.Succeed(c.T, "free", err)
}

// write is a launch that declares a block and writes 16 bytes elsewhere.
func (c *culprit) write(ctx context.Context, name string, declared core.Block, at uint64) {
	c.Helper()
	e2e.Succeed(c.T, name, c.rt.LaunchNamed(ctx, name, c.stream.ID(), []core.Use{{Block: declared.ID, Access: core.Write}}, func(context.Context) error {
		return c.rt.Driver().MemsetAsync(at, 7, 16, c.stream.Handle())
	}))
}

// close ends the runtime, for which nobody may have a stream; doing it again is
// nothing.
func (c *culprit) close() {
	c.Helper()
	if c.stream != nil {
		e2e.Succeed(c.T, "release", c.stream.Release())
		c.stream = nil
	}
	_, err := c.rt.Close(c.Context())
	e2e.Succeed(c.T, "close", err)
}

// found waits for the only finding of a kind.
func (c *culprit) found(kind core.FindingKind) core.Finding {
	c.Helper()
	for deadline := time.Now().Add(time.Minute); c.rt.Findings().Counts()[kind] == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			c.Fatalf("no %s was found: %v", kind, c.rt.Findings().Recent())
		}
	}
	return e2e.Single(c.T, c.rt, kind)
}

// The ways in which the guard comes to see what a request has done, long after the
// request: each does the harm in a request and returns what is found.
var lateLooks = map[string]struct {
	cfg fencepost.Config
	do  func(c *culprit, ctx context.Context) core.Finding
}{
	"a comparison, out of bounds": {fencepost.Config{Guard: "hunt"}, func(c *culprit, ctx context.Context) core.Finding {
		b := c.allocate(ctx, "victim")
		c.write(ctx, "off_by_one", b, b.ID.Ptr+b.Requested)
		c.free(ctx, b)
		e2e.Succeed(c.T, "drain", c.rt.Drain(c.Context()))
		return c.found(names.FindingOutOfBoundsWrite)
	}},
	"bisection, before the block is freed": {fencepost.Config{Guard: "hunt:bisect"}, func(c *culprit, ctx context.Context) core.Finding {
		b := c.allocate(ctx, "victim")
		c.write(ctx, "off_by_one", b, b.ID.Ptr+b.Requested)
		e2e.Succeed(c.T, "synchronize", c.rt.Streams().Synchronize(c.Context(), c.stream.ID()))
		e2e.Succeed(c.T, "reap", c.rt.ReapPending(c.Context()))
		defer c.free(ctx, b)
		return c.found(names.FindingOutOfBoundsWrite)
	}},
	"the end of quarantine, use after free": {fencepost.Config{Guard: "hunt"}, func(c *culprit, ctx context.Context) core.Finding {
		b, other := c.allocate(ctx, "victim"), c.allocate(ctx, "other")
		c.free(ctx, b)
		c.write(ctx, "late", other, b.ID.Ptr)
		e2e.Succeed(c.T, "drain", c.rt.Drain(c.Context()))
		defer c.free(ctx, other)
		return c.found(names.FindingUseAfterFreeWrite)
	}},
	"upkeep, in the background": {fencepost.Config{Guard: "hunt", GuardConfig: debugguard.Config{QuarantineAge: 10 * time.Millisecond}}, func(c *culprit, ctx context.Context) core.Finding {
		b := c.allocate(ctx, "victim")
		c.write(ctx, "off_by_one", b, b.ID.Ptr+b.Requested)
		c.free(ctx, b)
		return c.found(names.FindingOutOfBoundsWrite)
	}},
	"Close, of a block in quarantine": {fencepost.Config{Guard: "hunt", GuardConfig: debugguard.Config{QuarantineAge: time.Hour, Advanced: debugguard.Advanced{UpkeepInterval: -1}}}, func(c *culprit, ctx context.Context) core.Finding {
		b := c.allocate(ctx, "victim")
		c.write(ctx, "off_by_one", b, b.ID.Ptr+b.Requested)
		c.free(ctx, b)
		if n := c.rt.Findings().Total(); n != 0 {
			c.Errorf("%d findings before Close", n)
		}
		c.close()
		return c.found(names.FindingOutOfBoundsWrite)
	}},
	"a sealed block that is compared when it is freed": {fencepost.Config{Guard: "sample"}, func(c *culprit, ctx context.Context) core.Finding {
		b, other := c.allocate(ctx, "victim"), c.allocate(ctx, "other")
		c.write(ctx, "fill", b, b.ID.Ptr)
		e2e.Succeed(c.T, "seal", c.rt.Guard().Seal(c.Context(), b.ID))
		c.write(ctx, "late", other, other.ID.Ptr)
		e2e.Succeed(c.T, "write", e2e.Memset(c.Context(), c.rt, b.ID.Ptr+64, 16, c.stream.Handle())) // around the runtime, or the oracle says what launch it was
		c.free(ctx, b)
		e2e.Succeed(c.T, "drain", c.rt.Drain(c.Context()))
		defer c.free(ctx, other)
		return c.found(names.FindingSealedWrite)
	}},
}

// What a request that is not sampled has done is found when it is long over, and
// one span of its trace tells of it; the log, the incident and what the service
// logs of the request lead there.
func TestALateFindingReachesTheTraceOfARequestThatIsNotSampled(t *testing.T) {
	for name, look := range lateLooks {
		t.Run(name, func(t *testing.T) {
			c := newCulprit(t, look.cfg)
			ctx := c.request("culprit", false)
			f := look.do(c, ctx)
			c.close() // nobody writes to the log any more
			spans := c.recorder.Ended()
			if len(spans) != 1 || len(c.recorder.Started()) != 1 {
				t.Fatalf("%d spans, want the finding's: %v", len(spans), f)
			}
			s, request := spans[0], trace.SpanContextFromContext(ctx)
			if !e2e.IsOf(s, telemetry.SpanFinding) || s.SpanContext().TraceID() != request.TraceID() || s.Parent().SpanID() != request.SpanID() {
				t.Errorf("the span %s %v is under %v", s.Name(), s.SpanContext(), s.Parent())
			}
			if got := spanText(s, telemetry.AttrTrace); got != names.TraceEvent {
				t.Errorf("the span says of its trace %q", got)
			}
			if spanText(s, telemetry.AttrFindingKind) != string(f.Kind) || spanText(s, telemetry.AttrLaunchName) != f.Suspects[0].Launch {
				t.Errorf("the span says %v of %v", s.Attributes(), f)
			}
			if trace.SpanID(f.Span.SpanID) != s.SpanContext().SpanID() || f.Span.Extent(f.Alone) != names.TraceEvent {
				t.Errorf("the finding names %x (%s)", f.Span, f.Span.Extent(f.Alone))
			}
			var line map[string]any
			e2e.Succeed(t, "parse", json.Unmarshal([]byte(strings.SplitN(c.log.String(), "\n", 2)[0]), &line))
			if line["trace_id"] != request.TraceID().String() || line["span_id"] != s.SpanContext().SpanID().String() || line["trace"] != "event" {
				t.Errorf("logged %v", line)
			}
			if span, extent := c.rt.TraceOf(ctx); span != f.Span || extent != names.TraceEvent {
				t.Errorf("the service would log %x (%s)", span, extent)
			}
			if in := e2e.OnlyIncident(t, c.rt); in.Finding.TraceID != request.TraceID().String() || in.Finding.Trace != names.TraceEvent {
				t.Errorf("the incident names trace %v (%s)", in.Finding.TraceID, in.Finding.Trace)
			}
		})
	}
}

func TestALateFindingReachesTheLaunchOfARequestThatIsSampled(t *testing.T) {
	for name, look := range lateLooks {
		t.Run(name, func(t *testing.T) {
			c := newCulprit(t, look.cfg)
			ctx := c.request("culprit", true)
			f := look.do(c, ctx)
			found := e2e.SpansOf(c.recorder, telemetry.SpanFinding)
			if len(found) == 0 {
				t.Fatalf("no span of %v", f)
			}
			finishes := map[trace.SpanID]bool{}
			for _, s := range e2e.SpansOf(c.recorder, telemetry.SpanFinish) {
				finishes[s.SpanContext().SpanID()] = true
			}
			for _, s := range found {
				if !finishes[s.Parent().SpanID()] || spanText(s, telemetry.AttrTrace) != "" || s.SpanContext().TraceID() != trace.SpanContextFromContext(ctx).TraceID() {
					t.Errorf("the span %v is under %v", s.Attributes(), s.Parent())
				}
			}
			if f.Span.Extent(f.Alone) != names.TraceFull || trace.SpanID(f.Span.SpanID) != found[0].SpanContext().SpanID() {
				t.Errorf("the finding names %x (%s)", f.Span, f.Span.Extent(f.Alone))
			}
		})
	}
}

// Where the launch is not known the victim's own request is told: the one that freed
// it, or of a leak the one that allocated it.
func TestAFindingWithoutALaunchReachesTheRequestOfItsVictim(t *testing.T) {
	for _, sampled := range []bool{false, true} {
		extent := map[bool]string{false: names.TraceEvent, true: names.TraceFull}[sampled]
		c := newCulprit(t, fencepost.Config{Guard: "hunt"})
		allocator, freer := c.request("allocator", sampled), c.request("freer", sampled)
		b := c.allocate(allocator, "victim")
		c.free(freer, b)
		e2e.Succeed(t, "write", e2e.Memset(t.Context(), c.rt, b.ID.Ptr, 16, c.stream.Handle())) // around the runtime
		e2e.Succeed(t, "drain", c.rt.Drain(t.Context()))
		f := c.found(names.FindingUseAfterFreeWrite)
		if len(f.Suspects) != 0 || trace.TraceID(f.Span.TraceID) != trace.SpanContextFromContext(freer).TraceID() || f.Span.Extent(f.Alone) != extent {
			t.Errorf("%s is told in %x (%s), suspects %v", f.Kind, f.Span.TraceID, f.Span.Extent(f.Alone), f.Suspects)
		}
		_ = c.allocate(allocator, "forgotten")
		c.close()
		if f := c.found(names.FindingLeak); trace.TraceID(f.Span.TraceID) != trace.SpanContextFromContext(allocator).TraceID() || f.Span.Extent(f.Alone) != extent {
			t.Errorf("%s is told in %x (%s)", f.Kind, f.Span.TraceID, f.Span.Extent(f.Alone))
		}
		if spans := e2e.SpansOf(c.recorder, telemetry.SpanFinding); len(spans) != 2 {
			t.Errorf("%d spans of 2 findings", len(spans))
		}
	}
}

// A misuse that its call is told of has one span in that call's trace, and not another
// as a finding.
func TestARefusedMisuseInARequestThatIsNotSampledIsToldOnce(t *testing.T) {
	for policy, want := range map[fencepost.GuardPolicy]telemetry.SpanName{fencepost.PolicyRefuse: telemetry.SpanFailure, fencepost.PolicyReport: telemetry.SpanFinding} {
		c := newCulprit(t, fencepost.Config{Guard: "sample", GuardPolicy: policy})
		ctx := c.request("culprit", false)
		b := c.allocate(ctx, "victim")
		err := c.rt.LaunchNamed(ctx, "sum", c.stream.ID(), []core.Use{{Block: b.ID, Access: core.Read}}, func(context.Context) error { return nil })
		if refused := err != nil; refused != (policy == fencepost.PolicyRefuse) {
			t.Errorf("%s: %v", policy, err)
		}
		_ = c.found(names.FindingUninitializedRead)
		spans := c.recorder.Ended()
		if len(spans) != 1 || !e2e.IsOf(spans[0], want) || spans[0].SpanContext().TraceID() != trace.SpanContextFromContext(ctx).TraceID() {
			t.Errorf("%s: spans %v", policy, spans)
		}
		c.free(ctx, b)
	}
}

// Many requests at once, each with a bug of its own: what is told in a request's trace
// is that request's.
func TestLateFindingsOfManyRequestsDoNotMix(t *testing.T) {
	c := newCulprit(t, fencepost.Config{Guard: "hunt:bisect"})
	const workers, each = 4, 5
	var all sync.WaitGroup
	for w := range workers {
		on := e2e.Lease(t, c.rt, "worker")
		all.Go(func() {
			for i := range each {
				tag := core.Tag(fmt.Sprintf("request-%d-%d", w, i))
				ctx := c.request(string(tag), false)
				b, err := c.rt.Allocate(ctx, core.Request{Bytes: 1000, Stream: on.ID(), Tag: tag})
				if err != nil {
					t.Error(err)
					return
				}
				if err := c.rt.LaunchNamed(ctx, string(tag), on.ID(), []core.Use{{Block: b.ID, Access: core.Write}}, func(context.Context) error {
					return c.rt.Driver().MemsetAsync(b.ID.Ptr+b.Requested, 7, 16, on.Handle())
				}); err != nil {
					t.Error(err)
				}
				if _, err := c.rt.Deallocate(ctx, b.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	e2e.Succeed(t, "drain", c.rt.Drain(t.Context()))
	findings := c.rt.Findings().Recent()
	if len(findings) != workers*each {
		t.Errorf("%d findings", len(findings))
	}
	for _, f := range findings {
		own := trace.SpanContextFromContext(c.request(string(f.Victim.Tag), false)).TraceID()
		if f.Suspects[0].Launch != string(f.Victim.Tag) || trace.TraceID(f.Suspects[0].Caller.TraceID) != own || trace.TraceID(f.Span.TraceID) != own {
			t.Errorf("%v of %q is told in %x, suspects %v", f.Kind, f.Victim.Tag, f.Span.TraceID, f.Suspects)
		}
	}
	for _, s := range c.recorder.Ended() {
		id := s.SpanContext().TraceID()
		if launch := spanText(s, telemetry.AttrLaunchName); !strings.HasPrefix(launch, strings.TrimRight(string(id[:]), "\x00")) {
			t.Errorf("in trace %q is told of %q", id[:], launch)
		}
	}
}

func spanText(s sdktrace.ReadOnlySpan, key attribute.Key) string {
	for _, kv := range s.Attributes() {
		if kv.Key == key {
			return kv.Value.AsString()
		}
	}
	return ""
}
