package spancontract_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/dev/spancontract"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// TestMain clears the environment's overrides, which would change the stacks.
func TestMain(m *testing.M) {
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "FENCEPOST_") {
			_ = os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

// traced is a source of spans that are recorded.
type traced struct {
	*testing.T
	recorder *tracetest.SpanRecorder
	provider *sdktrace.TracerProvider
}

func newTraced(t *testing.T) *traced {
	recorder := tracetest.NewSpanRecorder()
	return &traced{T: t, recorder: recorder, provider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))}
}

// unsampled is the context of a caller whose trace is not sampled.
func (t *traced) unsampled() context.Context {
	return trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{9}, SpanID: trace.SpanID{8}}))
}

// request is the context of a caller whose span ends with the test.
func (t *traced) request() context.Context {
	ctx, span := t.provider.Tracer("service").Start(t.Context(), "request")
	span.End()
	return ctx
}

func (t *traced) must(err error) {
	t.Helper()
	must.Do(t, err)
}

// refused demands an error.
func (t *traced) refused(err error) {
	t.Helper()
	if err == nil {
		t.Fatal("not refused")
	}
}

// stack is a runtime on a simulated device, two streams and a way to work.
type stack struct {
	*traced
	rt     *fencepost.Runtime
	leases []*cuda.Lease
}

func (t *traced) open(cfg fencepost.Config) *stack {
	t.Helper()
	cfg.TracerProvider, cfg.Resource = t.provider, fencepost.Async // of whose freed memory requests wait
	if cfg.Driver == nil {
		cfg.Device = fencepost.Sim
	}
	rt, err := fencepost.Open(t.Context(), cfg)
	t.must(err)
	s := &stack{traced: t, rt: rt}
	for range 2 {
		lease, err := rt.Streams().Acquire(t.Context(), "test")
		t.must(err)
		s.leases = append(s.leases, lease)
	}
	return s
}

func (s *stack) close() {
	s.Helper()
	for _, l := range s.leases {
		s.must(l.Release())
	}
	_, err := s.rt.Close(s.Context())
	s.must(err)
}

func (s *stack) alloc(ctx context.Context, bytes uint64) core.Block {
	s.Helper()
	b, err := s.rt.Allocate(ctx, core.Request{Bytes: bytes, Stream: s.leases[0].ID(), Tag: "rows"})
	s.must(err)
	return b
}

func (s *stack) free(ctx context.Context, blocks ...core.Block) {
	s.Helper()
	for _, b := range blocks {
		_, err := s.rt.Deallocate(ctx, b.ID)
		s.must(err)
	}
}

func nothing(context.Context) error { return nil }

func usesOf(blocks ...core.Block) (uses []core.Use) {
	for _, b := range blocks {
		uses = append(uses, core.Use{Block: b.ID, Access: core.Write})
	}
	return uses
}

// successes are launches of few and of many blocks, with and without names, that
// wait for allocations and for each other, are aborted, and outlive their blocks.
func (s *stack) successes() {
	ctx := s.request()
	var blocks []core.Block
	for range telemetry.MaxUseSpans + 1 {
		blocks = append(blocks, s.alloc(ctx, 64))
	}
	one, two := s.leases[0].ID(), s.leases[1].ID()
	for _, name := range []string{"", "radix"} {
		for _, uses := range [][]core.Use{usesOf(blocks...), usesOf(blocks[0])} {
			s.must(s.rt.LaunchNamed(ctx, name, two, uses, nothing))
			s.must(s.rt.LaunchNamed(ctx, name, one, uses, nothing))
			ticket, err := s.rt.Core().PrepareUse(ctx, core.UseRequest{Stream: two, Launch: name, Uses: uses})
			s.must(err)
			s.must(s.rt.Core().AbortUse(ctx, ticket))
		}
	}
	last := s.alloc(ctx, 64)
	ticket, err := s.rt.Core().PrepareUse(ctx, core.UseRequest{Stream: two, Uses: usesOf(last)})
	s.must(err)
	s.free(context.Background(), last)
	s.must(s.rt.Core().FinishUse(context.Background(), ticket))
	s.free(ctx, blocks...)
}

// waits is a request that waits for memory of a stream that is held, until its context ends.
func (s *stack) waits() {
	release := must.Get(s.rt.Driver().(*sim.Device).Hold(s.leases[0].Handle()))(s)
	defer release()
	ctx, cancel := context.WithTimeout(s.request(), 100*time.Millisecond)
	defer cancel()
	before := s.rt.Budget().Limit()
	s.rt.Budget().SetLimit(s.rt.Stats().Charged + 1<<20)
	defer s.rt.Budget().SetLimit(before)
	s.free(ctx, s.alloc(ctx, 1<<20))
	_, err := s.rt.Allocate(ctx, core.Request{Bytes: 1 << 20, Stream: s.leases[1].ID(), Tag: "rows"})
	s.refused(err)
}

// copies are copies to and fro, with a block and without, and waits for them: also
// within a launch, and one that is given up.
func (s *stack) copies() {
	ctx, on := s.request(), s.leases[0].ID()
	around := cuda.NewUntrackedManager(s.rt.Driver(), s.rt.Streams(), 0)
	for _, m := range []*cuda.MemoryManager{s.rt.Memory(), around} {
		from, err := cuda.Alloc[uint32](ctx, m, 3, cuda.AllocOptions{Stream: on, Tag: "rows"})
		s.must(err)
		to, err := cuda.Alloc[uint32](ctx, m, 3, cuda.AllocOptions{Stream: on, Tag: "rows"})
		s.must(err)
		s.must(cuda.CopyToDevice(ctx, from, on, []uint32{1, 2, 3}))
		s.must(cuda.CopyOnDevice(ctx, to, from, on))
		values, err := cuda.Download(ctx, to, on)
		s.must(err)
		if values[2] != 3 {
			s.Errorf("copied %v", values)
		}
		s.must(from.Free(ctx))
		s.must(to.Free(ctx))
	}
	s.must(s.rt.Launch(ctx, on, nil, func(ctx context.Context) error { return s.rt.Streams().Synchronize(ctx, s.leases[1].ID()) }))
}

// findings are a write beyond a block by a launch, with a name and without, and
// frees that the guard refuses and notes.
func (s *stack) findings() {
	ctx := s.request()
	for _, name := range []string{"", "off_by_one"} {
		lease := s.leases[0]
		b := s.alloc(ctx, 1000)
		s.must(s.rt.LaunchNamed(ctx, name, lease.ID(), usesOf(b), func(context.Context) error {
			return s.rt.Driver().MemsetAsync(b.ID.Ptr, 7, b.Requested+16, lease.Handle())
		}))
		s.free(ctx, b)
		s.must(s.rt.Drain(ctx))
		_, err := s.rt.Deallocate(ctx, b.ID)
		s.refused(err)
		s.refused(s.rt.LaunchNamed(ctx, name, lease.ID(), usesOf(b), nothing))
	}
}

// told are findings where no launch is traced: in a request that is not sampled a
// write beyond a block, by one launch with a name and without; a read of what nobody
// wrote; and a block that is never freed in one that is.
func (s *stack) told() {
	ctx, lease := s.unsampled(), s.leases[0]
	for _, name := range []string{"", "off_by_one"} {
		b := s.alloc(ctx, 1000)
		s.must(s.rt.LaunchNamed(ctx, name, lease.ID(), usesOf(b), func(context.Context) error {
			return s.rt.Driver().MemsetAsync(b.ID.Ptr, 7, b.Requested+16, lease.Handle())
		}))
		s.free(ctx, b)
		s.must(s.rt.Drain(ctx))
	}
	b := s.alloc(s.request(), 64)
	s.must(s.rt.Launch(s.request(), lease.ID(), []core.Use{{Block: b.ID, Access: core.Read}}, nothing))
	s.free(ctx, b)
}

// refusals are failures of the layers themselves.
func (s *stack) refusals() {
	ctx := s.request()
	_, err := s.rt.Allocate(ctx, core.Request{Bytes: 1 << 40, Stream: s.leases[0].ID()})
	s.refused(err)
	_, err = s.rt.Allocate(ctx, core.Request{Bytes: 64, Stream: 1 << 40})
	s.refused(err)
	b := s.alloc(ctx, 64)
	held, err := s.rt.Core().PrepareUse(ctx, core.UseRequest{Stream: s.leases[0].ID(), Uses: usesOf(b)})
	s.must(err)
	_, err = s.rt.Core().PrepareUse(ctx, core.UseRequest{Stream: s.leases[1].ID(), Launch: "conflict", Uses: usesOf(b)})
	s.refused(err)
	_, err = s.rt.Core().PrepareUse(ctx, core.UseRequest{Stream: s.leases[1].ID(), Uses: []core.Use{{Block: b.ID}}})
	s.refused(err)
	s.must(s.rt.Core().AbortUse(ctx, held))
	s.free(ctx, b)
}

// jobs have a reservation and none, and fail, one of them with the error of a finding.
func (s *stack) jobs() {
	ctx := s.request()
	twice := func(j *fencepost.Job) error {
		x, err := fencepost.Upload(j, []uint32{1})
		s.must(err)
		_, err = s.rt.Deallocate(ctx, x.BlockID())
		s.must(err)
		_, err = s.rt.Deallocate(ctx, x.BlockID())
		return err
	}
	s.refused(s.rt.Do(ctx, "twice", twice))
	s.must(s.rt.Do(ctx, "reserves", func(*fencepost.Job) error { return nil }, fencepost.Reserve(4096, 0)))
	for range 21 { // it is known after 20
		s.must(s.rt.Do(ctx, "learned", func(j *fencepost.Job) error {
			_, err := fencepost.Alloc[byte](j, 4096)
			return err
		}, fencepost.Admit()))
	}
	s.refused(s.rt.Do(ctx, "reserves", func(*fencepost.Job) error { return nil }, fencepost.Reserve(1<<40, 0)))
}

// lonely are calls that fail and have no span of their own.
func (s *stack) lonely() {
	for _, ctx := range []context.Context{s.unsampled(), s.request()} {
		held := s.alloc(ctx, 64)
		_, err := s.rt.Allocate(ctx, core.Request{Bytes: 1 << 40, Stream: s.leases[0].ID()})
		s.refused(err)
		s.free(ctx, held)
		s.must(s.rt.Drain(ctx))
		_, err = s.rt.Reserve(ctx, 1<<40, "rows")
		s.refused(err)
		_, err = s.rt.Allocate(ctx, core.Request{Bytes: 64, Stream: 1 << 40})
		s.refused(err)
		s.refused(s.rt.ReleaseClaim(ctx, 1<<40))
		b := s.alloc(ctx, 64)
		s.free(ctx, b)
		for _, name := range []string{"", "radix"} {
			s.refused(s.rt.LaunchNamed(ctx, name, s.leases[0].ID(), usesOf(b), nothing))
		}
		_, err = s.rt.Deallocate(ctx, b.ID)
		s.refused(err)
		s.refused(s.rt.Core().RecordBlockUse(ctx, b.ID, s.leases[0].ID()))
	}
}

// causes are errors of every kind.
var causes = []error{
	&core.OutOfBudgetError{Requested: 8}, &core.DriverError{Op: "cuMemAllocAsync", OutOfMemory: true}, &core.DriverError{Op: "cuEventRecord", Name: "CUDA_ERROR_ILLEGAL_ADDRESS", Sticky: true},
	&core.UseAfterFreeError{Op: "Deallocate", Generation: 1}, &core.OutOfBoundsError{Op: "Deallocate"}, &core.StreamMisuseError{Op: "PrepareUse"}, refuse.Unsupported("PrepareUse", "direct", "none"),
	&core.InvalidRequestError{Op: "Allocate"}, fmt.Errorf("refused: %w", core.ErrClosed), context.DeadlineExceeded, context.Canceled, errors.New("odd"),
}

// reuses are allocations of memory that launches on another stream use: with names and without, of a trace that is sampled
// and of one that is not.
func (t *traced) reuses() {
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, TracerProvider: t.provider, Guard: "off", Pool: cuda.PoolConfig{Limit: sim.Granule}})
	t.must(err)
	for i, name := range []string{"", "train"} {
		for _, ctx := range []context.Context{t.request(), t.unsampled()} {
			one, err := rt.Streams().Acquire(t.Context(), "one")
			t.must(err)
			two, err := rt.Streams().Acquire(t.Context(), "two")
			t.must(err)
			b, err := rt.Allocate(ctx, core.Request{Bytes: sim.Granule, Stream: one.ID()})
			t.must(err)
			release := must.Get(rt.Driver().(*sim.Device).Hold(one.Handle()))(t)
			t.must(rt.LaunchNamed(ctx, name, one.ID(), usesOf(b), nothing))
			_, err = rt.Deallocate(ctx, b.ID)
			t.must(err)
			again, err := rt.Allocate(t.request(), core.Request{Bytes: sim.Granule / 2, Stream: two.ID(), Tag: []core.Tag{"", "rows"}[i]})
			t.must(err)
			release()
			_, err = rt.Deallocate(t.request(), again.ID)
			t.must(err)
			t.must(rt.Drain(t.Context()))
			t.must(one.Release())
			t.must(two.Release())
		}
	}
	_, err = rt.Close(t.Context())
	t.must(err)
}

// failures make each call fail with each cause, and each cause a finding once:
// of a known victim, with bytes compared, and of none.
func (t *traced) failures() {
	fake, findings := coretest.NewFake(0), telemetry.NewFindings(telemetry.FindingsConfig{})
	probe, err := telemetry.NewProbe(fake, telemetry.LayerDriver, t.provider)
	t.must(err)
	r, err := telemetry.NewResource(probe, telemetry.Config{TracerProvider: t.provider, Findings: findings})
	t.must(err)
	ctx := t.request()
	r.Refused(ctx, oplog.Event{Op: oplog.OpRefusal, Tag: "rows", Requested: 8,
		Err: &core.OutOfBudgetError{Requested: 8,
			Wait: core.Wait{For: 5, Ahead: 2, AheadBytes: 16, First: "sort", Learning: true}}})
	var blocks []core.Block
	for range telemetry.MaxUseSpans + 1 {
		b, err := r.Allocate(ctx, core.Request{Bytes: 64, Stream: 1})
		t.must(err)
		blocks = append(blocks, b)
	}
	for i, cause := range append(causes, causes...) {
		if i%2 == 0 {
			findings.Report(core.Finding{Kind: names.FindingStaleHandle, Source: "guard", Err: cause, Text: "known", Victim: blocks[0], BadBytes: uint64(i % 3)})
		}
		uses := [][]core.Use{usesOf(blocks[0]), usesOf(blocks...)}[i/len(causes)]
		req := core.UseRequest{Stream: 1, Launch: []string{"", "k"}[i%2], Uses: uses}
		for op, call := range map[string]func() error{
			"Allocate":   func() error { _, err := r.Allocate(ctx, core.Request{Bytes: 64, Stream: 1}); return err },
			"Deallocate": func() error { _, err := r.Deallocate(ctx, blocks[0].ID); return err },
			"PrepareUse": func() error { _, err := r.PrepareUse(ctx, req); return err },
			"FinishUse":  func() error { return t.ended(r, req, r.FinishUse) },
			"AbortUse":   func() error { return t.ended(r, req, r.AbortUse) },
		} {
			fake.FailNext(op, cause)
			t.refused(call())
		}
	}
}

// failedSteps are a copy that the driver refuses and waits that are given up or not.
func (t *traced) failedSteps() {
	steps := telemetry.Steps(telemetry.Config{TracerProvider: t.provider}, 0)
	steps(t.request(), oplog.Step{Stream: 1, Direction: "to_host", Bytes: 8})(causes[1])
	steps(t.request(), oplog.Step{Stream: 1})(context.DeadlineExceeded)
	steps(t.request(), oplog.Step{Stream: 1, Memory: true, Bytes: 64})(nil)
	steps(t.request(), oplog.Step{Stream: 1, Memory: true, Bytes: 64})(causes[1])
}

func (t *traced) ended(r core.Resource, req core.UseRequest, end func(context.Context, core.Ticket) error) error {
	t.Helper()
	ticket, err := r.PrepareUse(t.request(), req)
	t.must(err)
	return end(t.Context(), ticket)
}

// orphans are findings that say little: no victim, or one that nothing was
// compared of, under a launch with no name.
func (t *traced) orphans() {
	findings := telemetry.NewFindings(telemetry.FindingsConfig{TracerProvider: t.provider})
	for _, s := range t.recorder.Ended() {
		if slices.Contains(s.Attributes(), telemetry.AttrSpanOperation.String(string(telemetry.SpanLaunch))) {
			span := core.SpanRef{TraceID: s.SpanContext().TraceID(), SpanID: s.SpanContext().SpanID()}
			findings.Report(core.Finding{Kind: names.FindingStickyError, Source: "health", Text: "gone", Suspects: []core.UseRecord{{Span: span, LaunchID: 1}}})
			break
		}
	}
	for _, name := range []telemetry.SpanName{telemetry.SpanLaunch, telemetry.SpanAlloc, telemetry.SpanDealloc} {
		i := slices.IndexFunc(t.recorder.Ended(), func(s sdktrace.ReadOnlySpan) bool {
			return slices.Contains(s.Attributes(), telemetry.AttrSpanOperation.String(string(name)))
		})
		if i < 0 {
			t.Fatalf("no %s to hang a finding under", name)
		}
		findings.Report(core.Finding{Kind: names.FindingLeak, Source: "runtime", Text: "never freed", Origin: telemetry.SpanIn(trace.ContextWithSpanContext(t.Context(), t.recorder.Ended()[i].SpanContext()))})
	}
}

// A workload that meets every line of the contract keeps it.
func TestSpansKeepTheContract(t *testing.T) {
	work := newTraced(t)
	for _, cfg := range []fencepost.Config{
		{Guard: "off"}, {Guard: "off", NoRootSpans: true}, {Guard: "off", TraceLevel: telemetry.LevelLaunches},
		{Guard: "off", TraceLayers: true}, {Guard: "hunt", TraceLayers: true},
		{Guard: "hunt", Driver: e2e.Blind(t)}, // the guard finds by its bytes what the oracle would tell first
	} {
		s := work.open(cfg)
		s.successes()
		s.refusals()
		s.lonely()
		s.copies()
		s.waits()
		s.jobs()
		if cfg.Guard == "hunt" {
			s.findings()
			s.told()
		}
		s.close()
	}
	work.reuses()
	work.failures()
	work.orphans()
	work.failedSteps()

	spans := work.recorder.Ended()
	if started := len(work.recorder.Started()); started != len(spans) {
		t.Errorf("%d spans started, %d ended", started, len(spans))
	}
	problems := spancontract.Check(spans)
	for i, problem := range problems {
		if i < 10 {
			t.Error(problem)
		}
	}
	if len(problems) > 0 {
		t.Errorf("%d problems in %d spans", len(problems), len(spans))
	}
	seen := spancontract.Seen(spans)
	for _, line := range spancontract.All() {
		if seen[line] == 0 {
			t.Errorf("the workload never met: %s", line)
		}
	}
}
