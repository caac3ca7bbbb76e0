package stackconformance_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/pathtest"
)

// hammer is what its goroutines share.
type hammer struct {
	*whole
	t      *testing.T
	shared []core.StreamID
	// board are live blocks that anybody may free.
	board [32]atomic.Pointer[core.Block]
	// allocated and freed count what succeeded, released what the listeners heard of.
	allocated, freed, released atomic.Uint64
}

// Goroutines allocate and free on streams of their own and shared ones, and each other's blocks, while
// others change the limit, switch the guard, look at everything and churn leases. At the end
// all is accounted for.
func TestTheQuickPathUnderTheHammer(t *testing.T) {
	seed, steps := pathtest.Seed(t), 4000
	if testing.Short() {
		steps = 800
	}
	var gate *pathtest.Gate
	h := &hammer{t: t, whole: openWhole(t, setup{schedule: sim.FreeRunning(), guard: debugguard.Config{Mode: debugguard.Ledger}, between: map[int]core.Layer{0: pathtest.Put(&gate, seed, 50)}})}
	h.Backend.Subscribe(hears(func(core.Block) { h.released.Add(1) }))
	h.shared = []core.StreamID{h.Lease(t, "shared").ID(), h.Lease(t, "shared").ID(), core.DefaultStream}
	var workers, others sync.WaitGroup
	for g := range 5 {
		workers.Go(func() { h.work(rand.New(rand.NewPCG(seed, uint64(g))), steps) })
	}
	done := make(chan struct{})
	for _, do := range []func(*rand.Rand){h.changeLimit, h.switchGuard, h.look, h.churnLease} {
		others.Go(func() {
			for rng := rand.New(rand.NewPCG(seed, 99)); ; {
				select {
				case <-done:
					return
				default:
					do(rng)
				}
			}
		})
	}
	workers.Wait()
	close(done)
	others.Wait()
	for i := range h.board {
		h.free(h.board[i].Swap(nil))
	}
	h.account(gate)
}

func (h *hammer) work(rng *rand.Rand, steps int) {
	own, err := h.Streams.TryAcquire(context.Background(), "own")
	if err != nil {
		h.t.Error(err)
		return
	}
	for range steps {
		stream := own.ID()
		if rng.IntN(2) == 0 {
			stream = h.shared[rng.IntN(len(h.shared))]
		}
		h.allocate(rng, stream)
		if rng.IntN(3) == 0 {
			h.free(h.board[rng.IntN(len(h.board))].Swap(nil))
		}
		switch rng.IntN(200) {
		case 0:
			expect.Success(h.t, h.Runtime.ReapPending(context.Background()))
		case 1:
			h.tide(own.ID())
		}
	}
	expect.Success(h.t, own.Release())
}

// allocate puts a block on the board, and frees the one that was there.
func (h *hammer) allocate(rng *rand.Rand, stream core.StreamID) {
	req := core.Request{Bytes: 64 << rng.IntN(2), Stream: stream, Tag: playerTags[0]} // such as the stream may have kept
	if rng.IntN(2) == 0 {
		req.Bytes, req.Tag = 1+rng.Uint64N(1<<(6+rng.IntN(12))), playerTags[rng.IntN(len(playerTags))]
	}
	b, err := h.Runtime.Allocate(context.Background(), req)
	if err != nil {
		if !errors.Is(err, core.ErrOutOfBudget) {
			h.t.Error(err)
		}
		return
	}
	h.allocated.Add(1)
	if rng.IntN(3) > 0 { // the steady state
		h.free(&b)
		return
	}
	h.free(h.board[rng.IntN(len(h.board))].Swap(&b))
}

// tide frees more blocks one after the other than a stream keeps records for: the others are for other streams.
func (h *hammer) tide(stream core.StreamID) {
	var blocks []core.Block
	for range 200 {
		if b, err := h.Runtime.Allocate(context.Background(), core.Request{Bytes: 64, Stream: stream}); err == nil {
			h.allocated.Add(1)
			blocks = append(blocks, b)
		}
	}
	for i := range blocks {
		h.free(&blocks[i])
	}
}

// free frees a block, and once more: only one of both succeeds.
func (h *hammer) free(b *core.Block) {
	if b == nil {
		return
	}
	if _, err := h.Runtime.Deallocate(context.Background(), b.ID); err != nil {
		h.t.Errorf("freeing %v: %v", b.ID, err)
		return
	}
	h.freed.Add(1)
	if b.ID.Generation%8 == 0 {
		if _, err := h.Runtime.Deallocate(context.Background(), b.ID); !errors.Is(err, core.ErrUseAfterFree) {
			h.t.Errorf("a second free of %v: %v", b.ID, err)
		}
	}
}

// changeLimit goes below what is live, too, so that credit is recalled and requests are refused.
func (h *hammer) changeLimit(rng *rand.Rand) {
	h.budget.SetLimit([]uint64{limit, 1 << 20, 64 << 10, limit, limit}[rng.IntN(5)])
	time.Sleep(200 * time.Microsecond)
}

func (h *hammer) switchGuard(rng *rand.Rand) {
	expect.Success(h.t, h.guard.SetMode(context.Background(), []debugguard.Mode{debugguard.Off, debugguard.Ledger}[rng.IntN(2)]))
	time.Sleep(300 * time.Microsecond)
}

func (h *hammer) look(*rand.Rand) {
	if s := h.Runtime.Stats(); s.Underflows != 0 {
		h.t.Errorf("%d underflows", s.Underflows)
	}
	_ = h.budget.Holders()
	_ = h.guard.GuardStats()
	_ = h.ring.Snapshot()
	_ = h.calls.Operations()
	time.Sleep(100 * time.Microsecond)
}

// churnLease frees a block after its lease was given back.
func (h *hammer) churnLease(rng *rand.Rand) {
	lease, err := h.Streams.TryAcquire(context.Background(), "churn")
	if err != nil {
		h.t.Error(err)
		return
	}
	for range 20 {
		h.allocate(rng, lease.ID())
	}
	expect.Success(h.t, lease.Release())
}

// account demands that everything that was allocated has been freed once, and is told of once.
func (h *hammer) account(gate *pathtest.Gate) {
	h.t.Helper()
	for _, err := range []error{h.Runtime.Drain(context.Background()), h.guard.Flush(context.Background())} {
		expect.Success(h.t, err)
	}
	s, calls, allocated := h.Runtime.Stats(), h.calls.Operations(), h.allocated.Load()
	for what, n := range map[string]uint64{
		"freed": h.freed.Load(), "released": h.released.Load(), "in the books as allocated": s.Allocations, "in the books as freed": s.Deallocations,
		"allocations in the calls": calls.Succeeded(oplog.OpAllocate), "frees in the calls": calls.Succeeded(oplog.OpDeallocate),
		"timed": s.FreeToReusable.Count(), "seen by the gate": gate.AtOnce.Allocations.Load() + gate.Prepared.Allocations.Load(),
	} {
		if n != allocated {
			h.t.Errorf("%s: %d, %d blocks were allocated", what, n, allocated)
		}
	}
	if held := s.Outstanding(); held != (core.Amount{}) || s.Charged != 0 || s.Claimed != 0 || s.Underflows != 0 || s.PoolUsed != 0 || len(h.budget.Holders()) != 0 {
		h.t.Errorf("held %+v, charged %d, of the pool %d, underflows %d, holders %v", held, s.Charged, s.PoolUsed, s.Underflows, h.budget.Holders())
	}
	if drift, err := h.Backend.Drift(); err != nil || !drift.Known || drift.Bytes != 0 {
		h.t.Errorf("drift %d, %v, %v", drift.Bytes, drift.Known, err)
	}
	if h.guard.GuardStats().Known != 0 || gate.Ordinary.Allocations.Load() == 0 || gate.Declined.Frees.Load() == 0 {
		h.t.Errorf("guard %+v; %d ordinary allocations, %d frees declined", h.guard.GuardStats(),
			gate.Ordinary.Allocations.Load(), gate.Declined.Frees.Load())
	}
}
