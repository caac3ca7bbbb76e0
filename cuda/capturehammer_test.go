package cuda_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// TestCaptureHammer captures on some streams again and again, launches the
// graphs on others, and beside it allocates, launches, copies, records uses, runs
// the guard's kernels, frees and reaps on all of them. What is refused must be a misuse; every graph that was launched must have
// run, once for each launch; and the oracle judges every access.
func TestCaptureHammer(t *testing.T) {
	const seed = 11
	b := newBench(t, ticking)
	h := &captureHammer{hammer: hammer{bench: b}}
	h.leased = b.leases(5)
	adopted, handle := b.adopt()
	for range 4 {
		h.shared = append(h.shared, b.zeroed(h.leased[0]))
	}
	h.raised = make([]uint64, len(h.shared))
	h.untracked = cuda.NewUntrackedManager(b.Driver, b.Streams, 0)
	var err error
	h.ops, err = cuda.NewDeviceOps(b.Driver, b.Streams, guardkernels.Image())
	must(t, err)
	var group, capturers sync.WaitGroup
	for g := range 2 { // each captures on a stream of its own
		capturers.Go(func() { h.captures(rand.New(rand.NewPCG(seed, uint64(g))), h.leased[g], h.leased[2:]) })
	}
	group.Go(func() { h.behind(rand.New(rand.NewPCG(seed, 10)), adopted, handle) })
	for g := range 5 {
		group.Go(func() { h.around(rand.New(rand.NewPCG(seed, uint64(20+g)))) })
	}
	capturers.Wait()
	h.over.Store(true)
	group.Wait()
	must(t, h.ops.Close(ctx))
	for i, block := range h.shared {
		equal(t, "a block's count", h.word(block, h.leased[3]), h.raised[i])
	}
	if h.launched == 0 || h.held == 0 {
		t.Errorf("seed %d: %d graphs launched, %d uses held back: the test proves nothing", seed, h.launched, h.held)
	}
	t.Logf("seed %d: %d refused, %d uses held back, %d graphs launched", seed, h.refused, h.held, h.launched)
	b.free(h.shared...)
	b.drain()
	b.giveUp(adopted, handle)
	st := b.Runtime.Stats()
	if st.Outstanding() != (core.Amount{}) || st.OpenIntents != 0 || st.Underflows != 0 || st.Poisoned != 0 {
		t.Errorf("seed %d: left over: %+v", seed, st)
	}
	equal(t, "graphs on the device", b.Sim.Books().Graphs, 0)
}

type captureHammer struct {
	hammer
	leased    []*cuda.Lease
	ops       deviceops.Device
	untracked *cuda.MemoryManager

	refused, held, launched int // guarded by mu

	over atomic.Bool
}

// expected passes success, and counts refusals.
func (h *captureHammer) expected(err error) bool {
	if errors.Is(err, core.ErrStreamMisuse) && !errors.Is(err, core.ErrDriver) {
		h.mu.Lock()
		if h.refused++; h.refused == 1 {
			h.Logf("the first refusal: %v", err)
		}
		h.mu.Unlock()
		return false
	}
	expect.Success(h, err)
	return err == nil
}

func (h *captureHammer) captures(rng *rand.Rand, own *cuda.Lease, others []*cuda.Lease) {
	for made := 0; made < 150; {
		i := rng.IntN(len(h.shared))
		uses := readWrites(h.shared[i])
		g, err := own.Capture(ctx, "hammer", declared(uses), func(s driver.Stream) error {
			h.expected(h.Runtime.ReapPending(ctx))
			h.recordsLate(own)
			return h.adder.Enqueue(s, grid, mixArgs(0, uses)...)
		})
		if !h.expected(err) { // a launch was announced on the stream
			time.Sleep(20 * time.Microsecond)
			continue
		}
		made++
		for range 1 + rng.IntN(3) {
			if h.expected(g.Launch(ctx, h.Runtime, others[rng.IntN(len(others))])) {
				h.mu.Lock()
				h.raised[i]++
				h.launched++
				h.mu.Unlock()
			}
		}
		h.expected(g.Close())
	}
}

// behind captures an adopted stream without the runtime knowing, and frees and
// reaps meanwhile. Its owner alone uses it, so no call is under way when a
// capture begins but those of the reaper, which has nothing to mark then.
func (h *captureHammer) behind(rng *rand.Rand, l *cuda.Lease, handle driver.Stream) {
	for range 60 {
		block, err := h.Runtime.Allocate(ctx, core.Request{Bytes: 8 * (1 + rng.Uint64N(64)), Stream: l.ID()})
		if !h.expected(err) {
			continue
		}
		must(h, h.Sim.StreamBeginCapture(handle))
		_, err = h.Runtime.Deallocate(ctx, block.ID)
		h.expected(err)
		h.expected(h.Runtime.ReapPending(ctx))
		g, err := h.Sim.StreamEndCapture(handle)
		if err != nil {
			h.Errorf("the runtime has touched a capture: %v", err)
			return
		}
		must(h, h.Sim.GraphDestroy(g))
		h.drain()
	}
}

// around does what a service does while others capture, on their streams too.
func (h *captureHammer) around(rng *rand.Rand) {
	for !h.over.Load() {
		on := h.leased[rng.IntN(len(h.leased))]
		switch rng.IntN(8) {
		case 0:
			h.expected(h.Runtime.ReapPending(ctx))
			_ = h.Runtime.Stats()
		case 1:
			block, err := h.Runtime.Allocate(ctx, core.Request{Bytes: 8 * (1 + rng.Uint64N(512)), Stream: on.ID()})
			if !h.expected(err) {
				continue
			}
			away := h.leased[rng.IntN(len(h.leased))]
			h.expected(h.kernel.Launch(ctx, h.Runtime, away, grid, declared(writes(block)), mixArgs(1, writes(block))...))
			_, err = h.Runtime.Deallocate(ctx, block.ID)
			h.expected(err)
		case 2:
			h.copies(on)
		case 3:
			h.guards(on)
		case 4:
			h.records(on)
		default:
			i := rng.IntN(len(h.shared))
			uses := readWrites(h.shared[i])
			if h.expected(h.adder.Launch(ctx, h.Runtime, on, grid, declared(uses), mixArgs(0, uses)...)) {
				h.mu.Lock()
				h.raised[i]++
				h.mu.Unlock()
			}
		}
	}
}

// recordsLate records a use during the capture of its stream. It is held back,
// and the free behind it.
func (h *captureHammer) recordsLate(on *cuda.Lease) {
	block, err := h.Runtime.Allocate(ctx, core.Request{Bytes: 64, Stream: h.leased[4].ID()})
	if !h.expected(err) {
		return
	}
	if !h.expected(h.Runtime.RecordBlockUse(ctx, block.ID, on.ID())) {
		h.mu.Lock()
		h.held++
		h.mu.Unlock()
	}
	_, err = h.Runtime.Deallocate(ctx, block.ID)
	h.expected(err)
}

// records declares work only when it is enqueued.
func (h *captureHammer) records(on *cuda.Lease) {
	block, err := h.Runtime.Allocate(ctx, core.Request{Bytes: 64, Stream: on.ID()})
	if !h.expected(err) {
		return
	}
	h.expected(h.Runtime.RecordBlockUse(ctx, block.ID, h.leased[2].ID()))
	_, err = h.Runtime.Deallocate(ctx, block.ID)
	h.expected(err)
}

// copies there and back without fences, in the order of one stream. What comes
// back is what went there unless a copy went into a graph.
func (h *captureHammer) copies(on *cuda.Lease) {
	slice, err := cuda.Alloc[uint32](ctx, h.untracked, 4, cuda.AllocOptions{})
	if !h.expected(err) {
		return
	}
	sent, got := []uint32{1, 2, 3, 4}, make([]uint32, 4)
	if h.expected(cuda.CopyToDevice(ctx, slice, on.ID(), sent)) {
		for !h.Failed() && !h.expected(cuda.CopyToHost(ctx, got, slice, on.ID())) {
			time.Sleep(20 * time.Microsecond) // a capture has begun between the two
		}
		for !h.Failed() && !h.expected(h.Streams.Synchronize(ctx, on.ID())) {
			time.Sleep(20 * time.Microsecond)
		}
		if !h.Failed() && !slices.Equal(got, sent) {
			h.Errorf("%v came back of %v: a copy went into a graph", got, sent)
		}
	}
	h.expected(slice.Free(ctx))
}

// guards fills memory as the guard does, and waits for it.
func (h *captureHammer) guards(on *cuda.Lease) {
	block, err := h.Runtime.Allocate(ctx, core.Request{Bytes: 64, Stream: h.leased[3].ID()})
	if !h.expected(err) {
		return
	}
	h.expected(h.Runtime.Launch(ctx, on.ID(), declared(writes(block)), func(context.Context) error {
		return h.ops.Fill(ctx, on.ID(), []deviceops.Region{{Ptr: block.ID.Ptr, Bytes: 64, Pattern: 7}})
	}))
	h.expected(h.ops.Synchronize(ctx, on.ID()))
	_, err = h.Runtime.Deallocate(ctx, block.ID)
	h.expected(err)
}
