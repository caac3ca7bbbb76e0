package cuda_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

// TestHammer shares blocks among goroutines, streams that are slow by turns,
// frees in mid-flight, recorders, aborts, reaps and statistics. The oracle
// judges every access; a counter in each block is raised by each launch that
// writes it, and must in the end be the number of those launches.
func TestHammer(t *testing.T) {
	b := newBench(t, ticking)
	h := &hammer{bench: b}
	streams := b.leases(6)
	for _, l := range streams {
		block := b.alloc(l, 8)
		must(t, b.Runtime.Launch(ctx, l.ID(), declared(writes(block)), func(context.Context) error {
			return b.Driver.MemsetAsync(block.ID.Ptr, 0, 8, l.Handle())
		}))
		h.shared = append(h.shared, block)
	}
	h.raised = make([]uint64, len(h.shared))
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() { h.work(rand.New(rand.NewPCG(7, uint64(g))), streams) })
	}
	group.Wait()
	for i, block := range h.shared {
		equal(t, "a block's count", h.count(block, streams[0]), h.raised[i])
	}
	b.free(h.shared...)
	b.drain()
	st := b.Runtime.Stats()
	if st.Outstanding() != (core.Amount{}) || st.OpenIntents != 0 || st.Underflows != 0 {
		t.Errorf("left over: %+v", st)
	}
}

type hammer struct {
	*bench
	shared []core.Block
	mu     sync.Mutex
	raised []uint64
}

func (h *hammer) work(rng *rand.Rand, streams []*cuda.Lease) {
	for range 150 {
		on := streams[rng.IntN(len(streams))]
		var err error
		switch rng.IntN(8) {
		case 0:
			err = h.Sim.SlowStream(on.Handle(), time.Duration(rng.IntN(50))*time.Microsecond)
		case 1:
			err = h.Runtime.ReapPending(ctx)
			_ = h.Runtime.Stats()
		case 2:
			err = h.churn(rng, streams)
		case 3:
			err = h.aborted(on)
		default:
			err = h.raise(rng, on)
		}
		if err != nil {
			h.Error(err)
			return
		}
	}
}

// raise adds one to each of some blocks.
func (h *hammer) raise(rng *rand.Rand, on *cuda.Lease) error {
	var uses []use
	picked := rng.Perm(len(h.shared))[:1+rng.IntN(3)]
	for _, i := range picked {
		uses = append(uses, readWrites(h.shared[i])...)
	}
	err := h.Runtime.Launch(ctx, on.ID(), declared(uses), func(context.Context) error {
		return core.NotEnqueued(h.adder.Enqueue(on.Handle(), grid, mixArgs(0, uses)...))
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range picked {
		h.raised[i]++
	}
	return err
}

// churn uses a block of its own across streams and frees it while busy.
func (h *hammer) churn(rng *rand.Rand, streams []*cuda.Lease) error {
	home, away := streams[rng.IntN(len(streams))], streams[rng.IntN(len(streams))]
	block, err := h.Runtime.Allocate(ctx, core.Request{Bytes: 8 * (1 + rng.Uint64N(512)), Stream: home.ID()})
	if err != nil {
		return err
	}
	rec := core.NewStrictRecorder(away.ID())
	if err := errors.Join(rec.Write(block), rec.Preflight(ctx, h.Runtime)); err != nil {
		return err
	}
	err = h.kernel.Enqueue(away.Handle(), grid, mixArgs(1, writes(block))...)
	if rng.IntN(2) == 0 { // free before the launch is finished
		_, freeErr := h.Runtime.Deallocate(ctx, block.ID)
		return errors.Join(err, freeErr, rec.Commit(ctx, h.Runtime))
	}
	err = errors.Join(err, rec.Commit(ctx, h.Runtime))
	_, freeErr := h.Runtime.Deallocate(ctx, block.ID)
	return errors.Join(err, freeErr)
}

func (h *hammer) aborted(on *cuda.Lease) error {
	t, err := h.Runtime.PrepareUse(ctx, core.UseRequest{Stream: on.ID(), Uses: declared(reads(h.shared...)), Wait: true})
	if err != nil {
		return err
	}
	return h.Runtime.AbortUse(ctx, t)
}

func (h *hammer) count(block core.Block, on *cuda.Lease) uint64 {
	h.Helper()
	got := make([]byte, 8)
	must(h, h.Runtime.Launch(ctx, on.ID(), declared(reads(block)), func(context.Context) error {
		return h.Driver.CopyToHostAsync(got, block.ID.Ptr, on.Handle())
	}))
	h.sync(on)
	return le64(got)
}
