package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/dev/eval/guardcost"
)

// nullOps are device operations over a driver that runs no kernel, so that
// nobody has written the results. Reading those is the only thing not done.
type nullOps struct{ deviceops.Device }

func (o nullOps) Verify(ctx context.Context, stream core.StreamID, regions []deviceops.Region) (deviceops.Verification, error) {
	v, err := o.Device.Verify(ctx, stream, regions)
	return silent{v}, err
}

type silent struct{ deviceops.Verification }

func (s silent) Mismatches() ([]deviceops.Mismatch, error) {
	s.Discard()
	return nil, nil
}

// steady is a quarantine in bytes that some thousand blocks fill, so that what
// is measured is mostly done while it is full.
const steady = 4 << 20

// openGuarded is the whole stack with its guard at a tier, and a quarantine that is full.
func openGuarded(tb testing.TB, drv driver.Driver, newBackend constructor, tier string) *stack {
	tb.Helper()
	s, guard := guarded(tb, drv, newBackend, tier, steady, counted)
	tb.Cleanup(func() {
		fatal(tb, guard.Drain(context.Background()))
		g := guard.GuardStats()
		if b, ok := tb.(*testing.B); g.Findings > 0 || g.Unchecked > g.Guarded/4 || ok && b.N > 100 && tier == "sample:1" && g.Guarded == 0 {
			tb.Errorf("what was measured is not the guard at work: %+v", g)
		}
	})
	return s
}

// openTraced is openDefault as services run it: with a tracer provider, in a request that is not sampled.
func openTraced(tb testing.TB, drv driver.Driver, newBackend constructor) *stack {
	tb.Helper()
	s := openAs(tb, drv, newBackend, traced(sdktrace.AlwaysSample()))
	s.ctx = unsampledParent()
	return s
}

// openDefault is the whole stack with its guard as it is if nothing else is said.
func openDefault(tb testing.TB, drv driver.Driver, newBackend constructor) *stack {
	tb.Helper()
	return openAs(tb, drv, newBackend, counted)
}

func openAs(tb testing.TB, drv driver.Driver, newBackend constructor, observed core.Layer) *stack {
	tb.Helper()
	s, guard := guarded(tb, drv, newBackend, "sample", 0, observed)
	tb.Cleanup(func() {
		fatal(tb, guard.Drain(context.Background()))
		if g := guard.GuardStats(); g.Findings > 0 {
			tb.Errorf("the guard found what is not there: %+v", g)
		}
	})
	return s
}

// guarded is the whole stack with its guard at a tier, and the guard.
func guarded(tb testing.TB, drv driver.Driver, newBackend constructor, tier string, quarantine uint64, observed core.Layer) (*stack, *debugguard.Resource) {
	tb.Helper()
	var guard *debugguard.Resource
	s := openOn(tb, drv, newBackend, func(streams *cuda.StreamPool) []core.Layer {
		ops, err := cuda.NewDeviceOps(drv, streams, guardkernels.Image())
		fatal(tb, err)
		tb.Cleanup(func() { fatal(tb, ops.Close(context.Background())) })
		var device deviceops.Ops = ops
		if _, null := drv.(*drivertest.Null); null {
			device = nullOps{ops}
		}
		return []core.Layer{ring, limit, func(up core.Resource) (core.Resource, error) {
			var err error
			guard, err = debugguard.New(up, debugguard.Config{Device: device, QuarantineBytes: quarantine})
			return guard, err
		}, observed}
	})
	fatal(tb, guardcost.Apply(context.Background(), guard, tier))
	return s, guard
}

func fatal(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// overTiers runs a benchmark with the whole stack at each tier of its guard,
// from several goroutines. The guard switched off is the bare one.
func overTiers(b *testing.B, drv func() driver.Driver, newBackend constructor, threads []int, run func(*testing.B, *stack, int)) {
	for _, goroutines := range threads {
		for _, tier := range guardcost.Tiers() {
			name := tier
			if tier == "off" {
				name = "bare"
			}
			b.Run(fmt.Sprintf("goroutines=%d/guard=%s", goroutines, name), func(b *testing.B) {
				s := openGuarded(b, drv(), newBackend, tier)
				b.ReportAllocs()
				run(b, s, goroutines)
			})
		}
	}
}

func nothing() driver.Driver { return &drivertest.Null{} }

// BenchmarkGuardPair is an allocation of 4 KiB and its free.
func BenchmarkGuardPair(b *testing.B) { overTiers(b, nothing, async, []int{1, 2}, pairs) }

// BenchmarkGuardLaunch is the fencing of a launch that writes two blocks of
// its own stream.
func BenchmarkGuardLaunch(b *testing.B) { overTiers(b, nothing, async, []int{1, 2}, launchesOfTwo) }

// BenchmarkGuardLife is two blocks allocated, one launch that writes them, and
// their frees: what a short kernel with its scratch memory is.
func BenchmarkGuardLife(b *testing.B) { overTiers(b, nothing, async, []int{1, 2}, lives) }

// together runs b.N rounds in all, from several goroutines that each have a
// stream of their own.
func together(b *testing.B, s *stack, goroutines int, prepare func(*cuda.Lease) func(context.Context) error) {
	crowd(b, s, goroutines, func(int) func(context.Context) error { return prepare(s.lease(b)) })
}

// crowd runs b.N rounds in all, from several goroutines.
func crowd(b *testing.B, s *stack, goroutines int, prepare func(goroutine int) func(context.Context) error) {
	var rounds []func(context.Context) error
	for g := range goroutines {
		rounds = append(rounds, prepare(g))
	}
	var group sync.WaitGroup
	b.ResetTimer()
	for _, round := range rounds {
		group.Go(func() {
			for range b.N / goroutines {
				if err := round(s.ctx); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.StopTimer()
}

func launchesOfTwo(b *testing.B, s *stack, goroutines int) {
	together(b, s, goroutines, func(on *cuda.Lease) func(context.Context) error {
		uses := blocks(b, s, on.ID(), 2)
		b.Cleanup(func() {
			for _, u := range uses {
				_, err := s.runtime.Deallocate(context.Background(), u.Block)
				fatal(b, err)
			}
		})
		return func(ctx context.Context) error {
			return s.runtime.Launch(ctx, on.ID(), uses, func(context.Context) error { return nil })
		}
	})
}

func lives(b *testing.B, s *stack, goroutines int) {
	together(b, s, goroutines, func(on *cuda.Lease) func(context.Context) error {
		uses := make([]core.Use, 2)
		return func(ctx context.Context) error {
			for i := range uses {
				block, err := s.runtime.Allocate(ctx, core.Request{Bytes: 4096, Stream: on.ID(), Tag: "bench"})
				if err != nil {
					return err
				}
				uses[i] = core.Use{Block: block.ID, Access: core.Write}
			}
			if err := s.runtime.Launch(ctx, on.ID(), uses, func(context.Context) error { return nil }); err != nil {
				return err
			}
			for _, u := range uses {
				if _, err := s.runtime.Deallocate(ctx, u.Block); err != nil {
					return err
				}
			}
			return nil
		}
	})
}
