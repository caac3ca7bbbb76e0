package runtimes_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// The program's code that a runtime calls, and the steps in which it does.
var (
	callbacks = []string{"sink", "sampler", "span start", "span end", "logger", "OnFinding", "OnHealth", "OnStop",
		"TelemetryLost", "listener",
		"writer", "OnError", "layer around the guard", "layer around the budget", "layer around the guard, behind",
		"layer around the budget, behind"}
	userSteps = []string{"allocate", "launch", "free", "reap", "finding", "oracle", "refusal", "reserve", "seal", "job",
		"job's end", "guard", "Close"}
	acts = []string{"panics", "exits", "blocks", "calls back", "closes"}
)

// userCode is the program's code, in all the ways in which a runtime calls it: at one step one of
// them does one thing, once.
type userCode struct {
	callback, act string
	rt            *fencepost.Runtime
	guard         fencepost.GuardMode
	bound         time.Duration // of what it calls

	step    atomic.Value // a string
	at      string
	did     atomic.Bool
	acting  chan struct{} // closed when it does it
	acted   chan struct{} // closed when it has
	release chan struct{}
	hung    atomic.Value // what did not return
}

// hangs is how long anything may take on a busy machine.
const hangs = 20 * time.Second

// String keeps the record of its panic from reading what its goroutines write.
func (u *userCode) String() string { return "the program's bug" }

func (u *userCode) called(callback string) {
	if callback != u.callback || u.step.Load() != u.at || u.did.Swap(true) {
		return
	}
	close(u.acting)
	defer close(u.acted)
	switch u.act {
	case "panics":
		panic(u)
	case "exits":
		runtime.Goexit()
	case "blocks":
		<-u.release
	case "calls back":
		u.callsBack()
	case "closes":
		u.call("Close", func(ctx context.Context) { _, _ = u.rt.Close(ctx) })
	}
}

// call calls f twice, on a goroutine that is waited for.
func (u *userCode) call(what string, f func(context.Context)) {
	for range 2 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			ctx, cancel := context.WithTimeout(context.Background(), u.bound)
			defer cancel()
			f(ctx)
		}()
		select {
		case <-done:
		case <-time.After(hangs):
			u.hung.Store(what)
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
			return
		}
	}
}

// callsBack calls what a program may call.
func (u *userCode) callsBack() {
	rt, call := u.rt, u.call
	call("Allocate", func(ctx context.Context) {
		if b, err := rt.Allocate(ctx, core.Request{Bytes: 4096, Tag: "rows"}); err == nil {
			_, _ = rt.Deallocate(ctx, b.ID)
		}
	})
	call("a job", func(ctx context.Context) {
		_ = rt.Do(ctx, "called back", func(j *fencepost.Job) error { return e2e.ErrorOf(fencepost.Alloc[byte](j, 4096)) },
			fencepost.Reserve(8192, 0))
	})
	call("ReapPending", func(ctx context.Context) { _ = rt.ReapPending(ctx) })
	call("Drain", func(ctx context.Context) { _ = rt.Drain(ctx) })
	call("SwitchGuard", func(ctx context.Context) {
		for _, mode := range []fencepost.GuardMode{fencepost.GuardOff, u.guard} {
			_ = rt.SwitchGuard(ctx, fencepost.GuardChange{Mode: &mode})
		}
	})
	call("Stats, Health, Holders", func(context.Context) {
		_, _, _ = rt.Stats(), rt.Health(), rt.Budget().Holders()
		_, _, _ = rt.GuardStatus(), rt.MemoryLimits(), rt.History().Snapshot()
	})
	call("Findings", func(context.Context) { _, _ = rt.Findings().Recent(), rt.Findings().Counts() })
	call("Drift", func(context.Context) { _, _ = rt.Drift() })
	call("TrimPool", func(ctx context.Context) { _ = rt.TrimPool(ctx, 0) })
	call("SetLimit", func(context.Context) { rt.Budget().SetLimit(rt.Budget().Limit()) })
	call("a scrape", func(context.Context) { u.scrape() })
}

func (u *userCode) scrape() {
	metrics := make(chan prometheus.Metric, 64)
	go func() { defer close(metrics); u.rt.Collector().Collect(metrics) }()
	for range metrics {
	}
}

func (u *userCode) OnStart(context.Context, sdktrace.ReadWriteSpan) { u.called("span start") }
func (u *userCode) OnEnd(sdktrace.ReadOnlySpan)                     { u.called("span end") }
func (u *userCode) Shutdown(context.Context) error                  { return nil }
func (u *userCode) ForceFlush(context.Context) error                { return nil }
func (u *userCode) Put(logging.Record)                              { u.called("sink") }
func (u *userCode) Flush(context.Context) error                     { return nil }
func (u *userCode) Close(context.Context) error                     { return nil }
func (u *userCode) Dropped() uint64                                 { return 0 }
func (u *userCode) Released(core.Block)                             { u.called("listener") }
func (u *userCode) Description() string                             { return "always" }
func (u *userCode) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	u.called("sampler")
	return sdktrace.AlwaysSample().ShouldSample(p)
}

func (u *userCode) Enabled(context.Context, slog.Level) bool  { return true }
func (u *userCode) Handle(context.Context, slog.Record) error { u.called("logger"); return nil }
func (u *userCode) WithAttrs([]slog.Attr) slog.Handler        { return u }
func (u *userCode) WithGroup(string) slog.Handler             { return u }

// Write fails at the step, so that OnError is called.
func (u *userCode) Write(line []byte) (int, error) {
	u.called("writer")
	if u.callback == "OnError" && u.step.Load() == u.at {
		return 0, io.ErrClosedPipe
	}
	return len(line), nil
}

// userLayer is a layer of the program's, which is called before it calls.
type userLayer struct {
	core.Resource
	name string
	u    *userCode
}

func (l *userLayer) String() string        { return "user(" + l.Resource.String() + ")" }
func (l *userLayer) Unwrap() core.Resource { return l.Resource }

func (l *userLayer) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	l.u.called(l.name)
	defer l.behind()
	return l.Resource.Allocate(ctx, r)
}

func (l *userLayer) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	l.u.called(l.name)
	defer l.behind()
	return l.Resource.Deallocate(ctx, id)
}

func (l *userLayer) PrepareUse(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
	l.u.called(l.name)
	defer l.behind()
	return l.Resource.PrepareUse(ctx, r)
}

func (l *userLayer) FinishUse(ctx context.Context, t core.Ticket) error {
	l.u.called(l.name)
	defer l.behind()
	return l.Resource.FinishUse(ctx, t)
}

func (l *userLayer) AbortUse(ctx context.Context, t core.Ticket) error {
	l.u.called(l.name)
	defer l.behind()
	return l.Resource.AbortUse(ctx, t)
}

func (l *userLayer) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	l.u.called(l.name)
	defer l.behind()
	return l.Resource.Reserve(ctx, bytes, tag)
}

func (l *userLayer) ReleaseClaim(ctx context.Context, id core.ClaimID) error {
	l.u.called(l.name)
	defer l.behind()
	return l.Resource.ReleaseClaim(ctx, id)
}

func (l *userLayer) ReapPending(ctx context.Context) error {
	l.u.called(l.name)
	defer l.behind()
	return l.Resource.ReapPending(ctx)
}

func (l *userLayer) Drain(ctx context.Context) error {
	l.u.called(l.name)
	defer l.behind()
	return l.Resource.Drain(ctx)
}

// behind is called behind the upstream's call.
func (l *userLayer) behind() { l.u.called(l.name + ", behind") }

func (u *userCode) layer(name string) []core.Layer {
	return []core.Layer{func(up core.Resource) (core.Resource, error) { return &userLayer{up, name, u}, nil }}
}

// runs calls f on a goroutine of its own, and returns when that has ended, however it did, or when
// the program's code blocks.
func (u *userCode) runs(t *testing.T, step string, f func()) (ended <-chan struct{}) {
	t.Helper()
	u.step.Store(step)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil && p != any(u) {
				panic(p)
			}
		}()
		f()
	}()
	blocks := u.acting
	if u.act != "blocks" {
		blocks = nil
	}
	select {
	case <-done:
	case <-blocks:
	case <-time.After(2 * hangs):
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		t.Fatalf("%s hangs", step)
	}
	return done
}

// Whatever of the program's code panics, ends its goroutine, blocks until it is released or calls
// the runtime back, and in whichever step: no block, byte, stream, reservation or place among those
// admitted is lost, others go on meanwhile, and the next job works.
func TestTheProgramsCodeMayDoAnythingAtAnyStep(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // which is told of the panics
	defer slog.SetDefault(before)
	var called sync.Map // the callbacks that a step called
	half := 0           // with -short: the other half is tried where the environment chooses async
	if e2e.Backends()[0] == fencepost.Async {
		half = 1
	}
	t.Run("of", func(t *testing.T) { // it ends when all that run beside each other have
		for _, backend := range []fencepost.Backend{fencepost.Pool, fencepost.Async} {
			for _, guard := range []fencepost.GuardMode{"sample:1", "ledger", "hunt:bisect"} {
				if testing.Short() && (backend == fencepost.Async) != (guard == "ledger") {
					continue
				}
				for _, callback := range callbacks {
					t.Run(fmt.Sprint(backend, "/", guard, "/", callback), func(t *testing.T) {
						t.Parallel()
						if userCodeActsAtEachStep(t, backend, guard, callback, half) {
							called.Store(callback, true)
						}
					})
				}
			}
		}
	})
	for _, callback := range callbacks {
		if _, ok := called.Load(callback); !ok && !t.Failed() {
			t.Errorf("no step calls %s", callback)
		}
	}
}

// userCodeActsAtEachStep reports whether a step called the callback. With -short it tries one half
// of the combinations.
func userCodeActsAtEachStep(t *testing.T, backend fencepost.Backend, guard fencepost.GuardMode, callback string, half int) (called bool) {
	for i, at := range userSteps {
		for j, act := range acts {
			if testing.Short() && (i+j)%2 != half {
				continue
			}
			if guard == "hunt:bisect" && (backend != fencepost.Pool || act != "calls back") {
				continue // its own are what runs behind a launch
			}
			if act == "closes" && (backend != fencepost.Pool || guard == "ledger" || testing.Short() && i%3 != 2) {
				continue // it takes a second each
			}
			if !t.Run(at+"/"+act, func(t *testing.T) {
				called = userCodeActs(t, backend, guard, callback, at, act) || called
			}) {
				return called
			}
		}
	}
	return called
}

// stops waits until OnStop is called, if there was a finding of the kinds that stop.
func (u *userCode) stops(rt *fencepost.Runtime) {
	for range 1000 {
		if u.did.Load() || u.step.Load() != "oracle" || u.at != "oracle" || rt.Findings().Total() == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// userCodeActs runs a program, and reports whether its code was called at the step.
func userCodeActs(t *testing.T, backend fencepost.Backend, guard fencepost.GuardMode, callback, at, act string) bool {
	ctx := context.Background()
	u := &userCode{callback: callback, act: act, at: at, acting: make(chan struct{}), acted: make(chan struct{}),
		release: make(chan struct{}), guard: guard, bound: time.Second / 2}
	if act == "closes" {
		u.bound = 50 * time.Millisecond
	}
	u.step.Store("Open")
	written := logging.NewJSONSink(u, logging.Queue{Delay: time.Millisecond, OnError: func(error) { u.called("OnError") }})
	cfg := fencepost.Config{Resource: backend, Guard: guard, LogLevel: logging.Uses, LogSinks: []logging.Sink{u, written},
		Streams: 4, CloseTimeout: time.Second,
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(u), sdktrace.WithSpanProcessor(u)),
		OnFinding:      func(core.Finding) { u.called("OnFinding") }, OnHealth: func(core.Health) { u.called("OnHealth") },
		TelemetryLost: func() uint64 { u.called("TelemetryLost"); return 0 },
		Layers: fencepost.Layers{AroundBudget: u.layer("layer around the budget"),
			AroundGuard: u.layer("layer around the guard")}}
	cfg.Findings.Logger = slog.New(u)
	if callback == "OnStop" {
		cfg.GuardPolicy, cfg.OnStop = fencepost.PolicyStop, func(core.Finding) { u.called("OnStop") }
	}
	u.rt = e2e.OpenDirty(t, cfg)
	rt := u.rt
	core.Base(rt.Core().Resource()).Subscribe(u)
	k := loadAdd(t, rt)
	var released sync.Once
	free := func() { released.Do(func() { close(u.release) }) }
	t.Cleanup(free)
	defer func() { _ = written.Close(ctx) }()

	var mu sync.Mutex
	var held []core.BlockID
	alloc := func() (b core.Block) {
		b, err := rt.Allocate(ctx, core.Request{Bytes: 4096, Tag: "rows"})
		if err == nil {
			mu.Lock()
			held = append(held, b.ID)
			mu.Unlock()
		}
		return b
	}
	job := func(c context.Context, name string, within func(), options ...fencepost.JobOption) error {
		return rt.Do(c, name, func(j *fencepost.Job) error {
			got, err := addOn(j, k, []uint32{1, 2, 3}, 40)
			if err == nil && !slices.Equal(got, []uint32{41, 42, 43}) {
				err = fmt.Errorf("the kernel made %v", got)
			}
			within()
			return err
		}, options...)
	}
	var waits []<-chan struct{}
	run := func(step string, f func()) {
		waits = append(waits, u.runs(t, step, func() {
			f()
			switch callback {
			case "writer", "OnError":
				c, cancel := context.WithTimeout(ctx, hangs)
				defer cancel()
				_ = written.Flush(c)
			case "OnStop":
				u.stops(rt)
			}
		}))
		u.step.Store("between")
		if act == "blocks" && u.did.Load() && step != "Close" && step == at { // others go on meanwhile
			c, cancel := context.WithTimeout(ctx, hangs)
			defer cancel()
			if err := job(c, "meanwhile", func() {}); err != nil {
				_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
				t.Errorf("while %s blocks in %q a job fails: %v", callback, step, err)
			}
			free()
		}
	}
	for range 2 {
		run("between", func() { _ = job(ctx, "known", func() {}, fencepost.Admit()) })
	}
	var one, two core.Block
	known := func(b *core.Block) core.Block { // the step that sets it may be blocked
		mu.Lock()
		defer mu.Unlock()
		return *b
	}
	run("allocate", func() {
		a, b := alloc(), alloc()
		mu.Lock()
		defer mu.Unlock()
		one, two = a, b
	})
	run("launch", func() {
		_ = rt.LaunchNamed(ctx, "x", core.DefaultStream, []core.Use{{Block: known(&one).ID, Access: core.Write}},
			func(context.Context) error { return nil })
	})
	run("free", func() { _, _ = rt.Deallocate(ctx, known(&one).ID) })
	run("reap", func() { _, _ = rt.ReapPending(ctx), rt.Drain(ctx) })
	run("finding", func() { _, _ = rt.Deallocate(ctx, known(&one).ID) })
	run("oracle", func() {
		if s, err := rt.Streams().Acquire(ctx, "oracle"); err == nil {
			defer func() { _ = s.Release() }()
			b := known(&two).ID
			_ = rt.LaunchNamed(ctx, "x", s.ID(), []core.Use{{Block: b, Access: core.Write}}, func(context.Context) error {
				return e2e.Memset(ctx, rt, b.Ptr, 4100, s.Handle())
			})
		}
	})
	run("refusal", func() { _, _ = rt.Allocate(ctx, core.Request{Bytes: 1 << 50, Tag: "huge"}) })
	run("reserve", func() {
		if c, err := rt.Reserve(ctx, 4096, "rows"); err == nil {
			_ = rt.Core().ReleaseClaim(ctx, c.ID)
		}
	})
	run("seal", func() {
		sealed := known(&two)
		s, err := rt.Streams().Acquire(ctx, "seal")
		if err != nil {
			return
		}
		defer func() { _ = s.Release() }()
		_ = rt.Guard().Seal(ctx, sealed.ID)
		_ = rt.Guard().CheckSeals(ctx)
		_ = rt.LaunchNamed(ctx, "x", s.ID(), []core.Use{{Block: sealed.ID, Access: core.Read}},
			func(context.Context) error { return nil })
		_ = rt.Guard().Unseal(ctx, sealed.ID)
	})
	run("guard", func() {
		mode := fencepost.GuardOff
		_ = rt.SwitchGuard(ctx, fencepost.GuardChange{Mode: &mode})
		_ = rt.SwitchGuard(ctx, fencepost.GuardChange{Mode: &guard})
	})
	run("job", func() { _ = job(ctx, "known", func() {}, fencepost.Admit()) })
	run("job's end", func() {
		u.step.Store("job")
		_ = job(ctx, "known", func() { u.step.Store("job's end") }, fencepost.Admit())
	})
	closed := at == "Close" || act == "closes" && u.did.Load()
	if at == "Close" {
		run("Close", func() { _, _ = rt.Close(ctx) })
		free()
	}
	for _, ended := range waits {
		select {
		case <-ended:
		case <-time.After(2 * hangs):
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
			t.Fatalf("a step does not end once the program's code is released")
		}
	}
	free()
	if u.did.Load() {
		select {
		case <-u.acted:
		case <-time.After(2 * hangs):
			t.Fatalf("%s does not return", callback)
		}
	}
	if what := u.hung.Load(); what != nil {
		t.Errorf("%s hangs in a callback of %s", what, callback)
	}
	if !closed {
		for _, name := range []string{"known", "new kind"} {
			c, cancel := context.WithTimeout(ctx, hangs)
			if err := job(c, name, func() {}, fencepost.Admit()); err != nil {
				t.Errorf("the next job of %s: %v", name, err)
			}
			cancel()
		}
		for _, id := range held {
			if rt.Core().State(id) == core.Live {
				if _, err := rt.Deallocate(ctx, id); err != nil {
					t.Errorf("freeing: %v", err)
				}
			}
		}
		e2e.Succeed(t, "draining", rt.Drain(ctx))
		nothingIsHeld(t, rt)
	}
	_, err := rt.Close(ctx)
	if closed && (act == "panics" || act == "exits" || act == "closes") && u.did.Load() {
		err = nil // it may say that it was broken off, or that its own callback was under way
	}
	e2e.Succeed(t, "closing", err)
	if b := e2e.Simulated(rt).Books(); !closed && b != (sim.Books{}) {
		t.Errorf("the device still has %+v", b)
	}
	return u.did.Load()
}
