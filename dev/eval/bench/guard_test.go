package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/dev/eval/guardcost"
)

// steady is a quarantine in bytes that some thousand blocks fill, so that what
// is measured is mostly done while it is full.
const steady = 4 << 20

// openGuarded is a service's runtime with its guard at a tier, and a quarantine that is full.
func openGuarded(tb testing.TB, drv driver.Driver, backend fencepost.Backend, tier string) *stack {
	tb.Helper()
	s := service(tb, drv, over(backend), guarded(fencepost.GuardMode(tier)),
		func(cfg *fencepost.Config) { cfg.GuardConfig.QuarantineBytes = steady })
	tb.Cleanup(func() {
		guard := s.opened.Guard()
		fatal(tb, guard.Drain(context.Background()))
		g := guard.GuardStats()
		if b, ok := tb.(*testing.B); g.Unchecked > g.Guarded/4 || ok && b.N > 100 && tier == "sample:1" && g.Guarded == 0 {
			tb.Errorf("what was measured is not the guard at work: %+v", g)
		}
	})
	return s
}

func fatal(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// overTiers runs a benchmark with a service at each tier of its guard,
// from several goroutines. The guard switched off is the bare one.
func overTiers(b *testing.B, drv func() driver.Driver, backend fencepost.Backend, threads []int,
	run func(*testing.B, *stack, int)) {
	for _, goroutines := range threads {
		for _, tier := range guardcost.Tiers() {
			name := tier
			if tier == "off" {
				name = "bare"
			}
			b.Run(fmt.Sprintf("goroutines=%d/guard=%s", goroutines, name), func(b *testing.B) {
				s := openGuarded(b, drv(), backend, tier)
				b.ReportAllocs()
				run(b, s, goroutines)
			})
		}
	}
}

func nothing() driver.Driver { return &drivertest.Null{} }

// BenchmarkGuardPair is an allocation of 4 KiB and its free.
func BenchmarkGuardPair(b *testing.B) { overTiers(b, nothing, fencepost.Async, []int{1, 2}, pairs) }

// BenchmarkGuardLaunch is the fencing of a launch that writes two blocks of
// its own stream.
func BenchmarkGuardLaunch(b *testing.B) {
	overTiers(b, nothing, fencepost.Async, []int{1, 2}, launchesOfTwo)
}

// BenchmarkGuardLife is two blocks allocated, one launch that writes them, and
// their frees: what a short kernel with its scratch memory is.
func BenchmarkGuardLife(b *testing.B) { overTiers(b, nothing, fencepost.Async, []int{1, 2}, lives) }

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
