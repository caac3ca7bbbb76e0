package debugguard_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// TestSwitchingUnderLoad changes the setting all the time while goroutines
// allocate, use and free correctly.
func TestSwitchingUnderLoad(t *testing.T) {
	b := newBench(t, debugguard.Off, func(c *debugguard.Config) {
		c.SampleBytes, c.QuarantineBytes, c.Advanced.Tombstones = 4096, 16<<10, 64
	})
	var stop atomic.Bool
	var work, switcher sync.WaitGroup
	switcher.Go(func() {
		options := [...]debugguard.Setting{{}, {Bisect: true}, {Delay: true}, {Bisect: true, Delay: true, Unmap: true}}
		for i := 0; !stop.Load(); i++ {
			setting := debugguard.Setting{Mode: debugguard.Mode(i * 7 % 4)}
			if setting.Mode == debugguard.Hunt {
				setting = options[i/4%len(options)]
				setting.Mode = debugguard.Hunt
			}
			expect.Success(t, b.guard.Apply(ctx, setting))
			b.guard.SampleTag("churn", uint64(i%3)*2048)
			b.fake.Pass()
			time.Sleep(200 * time.Microsecond)
		}
	})
	for g := range 4 {
		work.Go(func() { churn(b, g, 1500) })
	}
	work.Wait()
	stop.Store(true)
	switcher.Wait()
	b.empty()
	b.want()
}

// churn is a correct program: it keeps some blocks live, uses them, writes
// all of their bytes, and frees some of them during a launch.
func churn(b *bench, seed, rounds int) {
	var live []core.Block
	for i := range rounds {
		block, err := b.guard.Allocate(ctx, core.Request{Bytes: uint64(1 + (i*37+seed)%900), Stream: core.StreamID(seed), Tag: "churn"})
		if err != nil {
			b.Error(err)
			return
		}
		live = append(live, block)
		use := live[i%len(live)]
		ticket, err := b.guard.PrepareUse(ctx, core.UseRequest{Stream: core.StreamID(seed), Launch: "churn",
			Uses: []core.Use{{Block: use.ID, Access: core.Write}, {Block: block.ID, Access: core.ReadWrite}}, Pointers: []uint64{block.ID.Ptr, use.ID.Ptr}})
		if err != nil {
			b.Error(err)
			return
		}
		b.mem.poke(use.ID.Ptr, int(use.Bytes))
		expect.Success(b, b.guard.FinishUse(ctx, ticket))
		if len(live) > 8 {
			if _, err := b.guard.Deallocate(ctx, live[0].ID); err != nil {
				b.Error(err)
			}
			live = live[1:]
		}
	}
	for _, block := range live {
		if _, err := b.guard.Deallocate(ctx, block.ID); err != nil {
			b.Error(err)
		}
	}
}

func TestHammer(t *testing.T) {
	for _, s := range []string{"ledger", "hunt", "hunt:bisect+delay"} {
		t.Run(s, func(t *testing.T) {
			setting := must.Get(debugguard.ParseMode(s))(t)
			b := newBench(t, setting.Mode, func(c *debugguard.Config) { c.QuarantineBytes, c.Advanced.Tombstones = 32<<10, 32 })
			must.Do(t, b.guard.Apply(ctx, setting))
			var stop atomic.Bool
			var work, readers sync.WaitGroup
			readers.Go(func() {
				for !stop.Load() {
					_ = b.guard.Stats()
					_ = b.guard.GuardStats()
					b.guard.Inspect().Blocks(func(core.BlockInfo) bool { return true })
					_ = b.guard.ReapPending(ctx)
					_ = b.guard.Drain(ctx)
				}
			})
			for g := range 4 {
				work.Go(func() { churn(b, g, 500) })
			}
			work.Wait()
			stop.Store(true)
			readers.Wait()
			b.empty()
			b.want()
		})
	}
}

// TestOneOfManyFreesWins: of concurrent frees of one block one succeeds.
func TestOneOfManyFreesWins(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	for range 100 {
		block := b.alloc(16)
		ticket := b.prepare("race", 1, block)
		var won, ended atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if _, err := b.guard.Deallocate(ctx, block.ID); err == nil {
					won.Add(1)
				}
			})
			all.Go(func() {
				if b.guard.FinishUse(ctx, ticket) == nil {
					ended.Add(1)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 || ended.Load() != 1 {
			t.Fatalf("%d frees and %d ends succeeded", won.Load(), ended.Load())
		}
		for _, f := range b.sink.taken() {
			if f.Kind != names.FindingDoubleFree {
				t.Errorf("finding %v", f)
			}
		}
	}
	b.empty()
}

// Of many who end one launch one does, below two guards as below one, while blocks are
// sealed, which looks at every open launch.
func TestHammerOneOfManyEndsWins(t *testing.T) {
	for _, guards := range []int{1, 2} {
		t.Run(fmt.Sprint(guards), func(t *testing.T) {
			b := newBench(t, debugguard.Sample, sampled)
			top := b.guard
			if guards == 2 {
				top = b.over(b.guard, debugguard.Sample, sampled)
			}
			var stop atomic.Bool
			var work, sealer sync.WaitGroup
			sealer.Go(func() {
				block := b.alloc(64)
				for !stop.Load() {
					expect.Success(t, errors.Join(b.guard.Seal(ctx, block.ID), b.guard.Unseal(ctx, block.ID)))
				}
				b.free(block)
			})
			for g := range 4 {
				work.Go(func() { endings(t, top, core.StreamID(g)) })
			}
			work.Wait()
			stop.Store(true)
			sealer.Wait()
			b.empty()
			b.want()
		})
	}
}

// endings prepares launches one after the other, each of which three try to end.
func endings(t *testing.T, guard *debugguard.Resource, stream core.StreamID) {
	block, err := guard.Allocate(ctx, core.Request{Bytes: 64, Stream: stream})
	if err != nil {
		t.Error(err)
		return
	}
	for i := range 300 {
		ticket, err := guard.PrepareUse(ctx, core.UseRequest{Stream: stream, Launch: "raced", Uses: []core.Use{{Block: block.ID, Access: core.Write}}})
		if err != nil {
			t.Error(err)
			return
		}
		var ended atomic.Int32
		var all sync.WaitGroup
		for e := range 3 {
			all.Go(func() {
				end := guard.FinishUse
				if (i+e)%3 == 0 {
					end = guard.AbortUse
				}
				if err := end(ctx, ticket); err == nil {
					ended.Add(1)
				} else if !errors.Is(err, core.ErrStreamMisuse) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := ended.Load(); n != 1 {
			t.Errorf("%d of three ended a launch", n)
		}
	}
	if _, err := guard.Deallocate(ctx, block.ID); err != nil {
		t.Error(err)
	}
}

// TestDelayedUpstream is RMM's scenario for decorators: the upstream frees,
// another thread gets the address, and only then the first call returns.
func TestDelayedUpstream(t *testing.T) {
	for _, mode := range []debugguard.Mode{debugguard.Off, debugguard.Ledger, debugguard.Hunt} {
		t.Run(mode.String(), func(t *testing.T) {
			b := newBench(t, debugguard.Off)
			b.guard = b.over(&delayed{Fake: coretest.NewFake(0), inner: map[core.Generation]uint64{}, wait: 30 * time.Millisecond}, mode,
				func(c *debugguard.Config) { c.QuarantineBytes = 1 })
			var both sync.WaitGroup
			for i := range 2 {
				both.Go(func() {
					time.Sleep(time.Duration(i) * 10 * time.Millisecond)
					for range 3 {
						b.free(b.alloc(256))
					}
				})
			}
			both.Wait()
			b.empty()
			b.want()
		})
	}
}

// The first blocks of a ledger may be released before it has shared its
// tombstones out.
func TestTheFirstBlocksOfAStreamMayBeReleasedAtOnce(t *testing.T) {
	for range 2000 {
		guard, err := debugguard.New(&null{}, debugguard.Config{Mode: debugguard.Ledger})
		must.Do(t, err)
		begin := make(chan struct{})
		var group sync.WaitGroup
		for range 2 {
			group.Go(func() {
				<-begin
				b, err := guard.Allocate(ctx, core.Request{Bytes: 64, Stream: 1})
				if err == nil {
					_, err = guard.Deallocate(ctx, b.ID)
				}
				expect.Success(t, err)
			})
		}
		close(begin)
		group.Wait()
		if got := guard.GuardStats().Tombstones; got != 2 {
			t.Fatalf("%d tombstones of 2 blocks", got)
		}
	}
}
