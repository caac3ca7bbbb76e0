package runtimes_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// bomb is code of the user's that the runtime calls, in all the ways in which it does, and
// that panics once.
type bomb struct {
	left atomic.Int64
	slog.Handler
}

func (b *bomb) step() {
	if b.left.Add(-1) == 0 {
		panic(b)
	}
}

func (b *bomb) OnStart(context.Context, sdktrace.ReadWriteSpan) { b.step() }
func (b *bomb) OnEnd(sdktrace.ReadOnlySpan)                     { b.step() }
func (b *bomb) Shutdown(context.Context) error                  { return nil }
func (b *bomb) ForceFlush(context.Context) error                { return nil }
func (b *bomb) Put(logging.Record)                              { b.step() }
func (b *bomb) Flush(context.Context) error                     { return nil }
func (b *bomb) Close(context.Context) error                     { return nil }
func (b *bomb) Dropped() uint64                                 { return 0 }
func (b *bomb) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "finding") { // the health's are logged beside the program
		b.step()
	}
	return nil
}
func (b *bomb) Enabled(ctx context.Context, level slog.Level) bool { return true }

// call reports whether f returned; it ends a panic of the bomb, and no other one.
func (b *bomb) call(f func()) (returned bool) {
	defer func() {
		if p := recover(); p != nil && p != any(b) {
			panic(p)
		}
	}()
	f()
	return true
}

// A panic of any call of the user's code, in any layer, loses no block, byte or launch that a
// caller did not get. The test takes some 12 seconds: a program runs for each call. With -short
// every third call panics.
func TestAPanicOfTheUsersCodeLosesNothing(t *testing.T) {
	for _, backend := range e2e.Backends() {
		for _, guard := range []fencepost.GuardMode{"off", "ledger", "sample:1", "hunt:bisect", "hunt:unmap"} {
			t.Run(fmt.Sprint(backend, "/", guard), func(t *testing.T) {
				n, step := int64(1), int64(1)
				if testing.Short() {
					step = 3
				}
				for ; explodes(t, backend, guard, n); n += step {
					if t.Failed() {
						t.Fatalf("call %d of the user's code had panicked", n)
					}
				}
				if n < 20 {
					t.Errorf("the program calls the user's code only %d times", n-1)
				}
			})
		}
	}
}

// explodes runs a program in which the n-th call of the user's code panics, and reports
// whether there was one.
func explodes(t *testing.T, backend fencepost.Backend, guard fencepost.GuardMode, n int64) bool {
	ctx, b := context.Background(), &bomb{}
	cfg := fencepost.Config{Driver: e2e.Blind(t), Resource: backend, Guard: guard, LogLevel: logging.Uses,
		LogSinks:       []logging.Sink{b},
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b)), OnFinding: func(core.Finding) { b.step() }}
	cfg.Findings.Logger = slog.New(b)
	// the calls are counted, and those beside the program would differ
	cfg.Async.ReapInterval, cfg.Pool.ReapInterval = -1, -1
	cfg.GuardConfig.Advanced.UpkeepInterval = -1
	rt := e2e.OpenDirty(t, cfg)
	s, err := rt.Streams().Acquire(ctx, "s")
	e2e.Succeed(t, "lease", err)
	b.left.Store(n)
	held := program(ctx, t, rt, s, b)
	exploded := b.left.Load() <= 0
	b.left.Store(-1)
	for _, block := range held {
		if rt.Core().State(block.ID) == core.Live {
			e2e.Free(t, rt, block)
		}
	}
	e2e.Succeed(t, "end", errors.Join(s.Release(), rt.Drain(ctx)))
	st := rt.Stats()
	drift, err := rt.Drift()
	left, closeErr := rt.Close(ctx)
	if st.Live.Blocks+st.Pending.Blocks+st.Quarantined.Blocks+st.OpenIntents+st.Charged+uint64(len(left.Leaks))+left.OpenIntents != 0 || drift.Bytes != 0 {
		t.Errorf("live %v, pending %v, quarantined %v, %d open, %d charged, %d leaks, drift %v", st.Live, st.Pending, st.Quarantined, st.OpenIntents, st.Charged, len(left.Leaks), drift)
	}
	e2e.Succeed(t, "close", errors.Join(err, closeErr))
	return exploded
}

// program does everything once, some of it wrongly, and returns the blocks that it was given.
func program(ctx context.Context, t *testing.T, rt *fencepost.Runtime, s *cuda.Lease, b *bomb) (held []core.Block) {
	drv := rt.Driver()
	alloc := func(bytes uint64) (block core.Block) {
		if b.call(func() { block, _ = rt.Allocate(ctx, core.Request{Bytes: bytes, Stream: s.ID(), Tag: "rows"}) }) && block.ID.Generation != 0 {
			held = append(held, block)
			return block
		}
		return core.Block{}
	}
	launch := func(name string, access core.Access, ptr, bytes uint64, blocks ...core.Block) {
		var uses []core.Use
		for _, block := range blocks {
			if block.ID.Generation == 0 {
				return
			}
			uses = append(uses, core.Use{Block: block.ID, Access: access})
		}
		b.call(func() {
			_ = rt.LaunchNamed(ctx, name, s.ID(), uses, func(context.Context) error {
				if access == core.Read {
					return nil
				}
				return drv.MemsetAsync(ptr, 7, bytes, s.Handle())
			})
		})
	}
	free := func(block core.Block) {
		b.call(func() { _, _ = rt.Deallocate(ctx, block.ID) })
	}
	one, two := alloc(1000), alloc(1<<20)
	launch("unwritten", core.Read, 0, 0, one)
	launch("both", core.Write, one.ID.Ptr, 1000, one, two)
	if rt.Guard().Mode() >= debugguard.Sample { // elsewhere the device's oracle tells of it, beside the program
		launch("overrun", core.Write, one.ID.Ptr, 1004, one)
	}
	b.call(func() {
		if ticket, err := rt.Core().PrepareUse(ctx, core.UseRequest{Stream: s.ID(), Launch: "aborted", Uses: []core.Use{{Block: two.ID, Access: core.Write}}}); err == nil {
			defer func() { // as a recorder does
				if ticket.IsOpen() {
					_ = rt.Core().AbortUse(ctx, ticket)
				}
			}()
			if _, err := rt.Deallocate(ctx, one.ID); err != nil {
				t.Log(err)
			}
		}
	})
	free(two)
	launch("stale", core.Write, 0, 0, two)
	free(two)
	for range 3 {
		free(alloc(4096))
	}
	b.call(func() { _ = rt.Drain(ctx) })
	b.call(func() { _, _ = rt.Allocate(ctx, core.Request{Bytes: 1 << 50, Stream: s.ID()}) })
	return held
}
