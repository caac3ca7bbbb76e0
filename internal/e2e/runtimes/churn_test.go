package runtimes_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// patient waits for a simulated device that others keep from the processor.
var patient = debugguard.Config{Advanced: debugguard.Advanced{Patience: time.Minute}}

// A program that holds less than the budget at any time is told no by nobody,
// whatever the guard does with what it freed.
func TestChurnWithinTheBudgetIsNeverRefusedInAnyMode(t *testing.T) {
	const limit = 24 << 20
	for _, guard := range e2e.GuardSettings {
		for _, streams := range []int{1, 3} {
			share := uint64(limit / streams)
			for name, size := range map[string]uint64{"small": 5000, "a third": share / 3, "most": share * 9 / 10, "all": share} {
				t.Run(fmt.Sprint(guard, " ", streams, " ", name), func(t *testing.T) {
					rt := e2e.Open(t, fencepost.Config{Guard: fencepost.GuardMode(guard), Budget: limit, GuardConfig: patient})
					var leases []*cuda.Lease
					for range streams {
						leases = append(leases, e2e.Lease(t, rt, "churn"))
					}
					rounds := 150
					if size > 1<<20 {
						rounds = 12
					}
					if testing.Short() {
						rounds /= 4
					}
					refused := 0
					for range rounds {
						for _, s := range leases {
							b, err := rt.Allocate(t.Context(), core.Request{Bytes: size, Stream: s.ID(), Tag: "churn"})
							if err != nil {
								if refused++; refused == 1 {
									t.Error(err)
								}
								continue
							}
							e2e.Free(t, rt, b)
						}
					}
					if st := rt.Stats(); refused > 0 || st.Refusals != 0 {
						t.Errorf("%d of %d refused, %d counted; %+v", refused, rounds*streams, st.Refusals, rt.Guard().GuardStats())
					}
				})
			}
		}
	}
}

// The streams' owners are goroutines here, each with half of its share of the budget live at most,
// and what one frees another finds no use for. The other half is for red zones, and for the pieces
// that blocks of three sizes leave between them.
func TestGoroutinesThatChurnWithinTheirSharesAreNeverRefused(t *testing.T) {
	const limit, goroutines, rounds = 32 << 20, 4, 40
	for _, guard := range e2e.GuardSettings {
		t.Run(guard, func(t *testing.T) {
			rt := e2e.Open(t, fencepost.Config{Guard: fencepost.GuardMode(guard), Budget: limit, GuardConfig: patient})
			var all sync.WaitGroup
			var refused atomic.Int64
			for g := range goroutines {
				s := e2e.Lease(t, rt, "churn")
				all.Go(func() {
					for i := range rounds {
						b, err := rt.Allocate(t.Context(), core.Request{Bytes: uint64(limit / goroutines / 2 / (1 + (i+g)%3)), Stream: s.ID(), Tag: "churn"})
						if err != nil {
							refused.Add(1)
							t.Error(err)
							return
						}
						if _, err = rt.Deallocate(t.Context(), b.ID); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			if st := rt.Stats(); st.Refusals != uint64(refused.Load()) {
				t.Errorf("%d refused, %d counted", refused.Load(), st.Refusals)
			}
		})
	}
}

// On a stream that does not get on at all, blocks that a hunt would isolate go
// without: their memory is not back before the host has unmapped it.
func TestChurnOnAStalledStreamIsNeverRefusedInAnyMode(t *testing.T) {
	for _, guard := range e2e.GuardSettings {
		t.Run(guard, func(t *testing.T) {
			rt := e2e.Open(t, fencepost.Config{Guard: fencepost.GuardMode(guard), Budget: 128 << 20, GuardConfig: debugguard.Config{Advanced: debugguard.Advanced{Hunt: debugguard.HuntConfig{Canaries: -1}}}})
			s := e2e.Lease(t, rt, "churn")
			release, err := e2e.Simulated(rt).Hold(s.Handle())
			e2e.Succeed(t, "holding the stream", err)
			defer release()
			began := time.Now()
			for i := range 500 {
				b, err := rt.Allocate(t.Context(), core.Request{Bytes: 5000, Stream: s.ID(), Tag: "churn"})
				if err != nil {
					t.Fatalf("round %d, %v after the start: %v", i, time.Since(began), err)
				}
				e2e.Free(t, rt, b)
			}
		})
	}
}
