package cuda_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// freeFaults are the calls that fail at random. A synchronise does not, nor does a new
// event: with either a use could not be fenced, and its block would wait for ever.
var freeFaults = []drivertest.Method{drivertest.MemFreeAsync, drivertest.StreamWait, drivertest.EventRecord, drivertest.EventQuery,
	drivertest.StreamCapturing, drivertest.MemUnmap, drivertest.MemUnreserve, drivertest.MemAllocAsync, drivertest.StreamCreate}

// TestFreeHammer allocates, launches, frees, captures, synchronises, trims and gives
// streams up from many goroutines, while calls of the driver fail at random, and closes
// the resource while frees still come. Whatever the schedule, each block is released once,
// never while a launch over it is open, or its kernel has not run where the memory waits for
// that, and nothing is left.
// FENCEPOST_SEED repeats what the goroutines do, though not when.
func TestFreeHammer(t *testing.T) {
	seeds, operations := uint64(6), 400
	if testing.Short() {
		seeds, operations = 2, 150
	}
	first := rand.Uint64()
	if text := os.Getenv("FENCEPOST_SEED"); text != "" {
		var err error
		if first, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("FENCEPOST_SEED=%s: %v", text, err)
		}
		seeds = 1
	}
	backends := map[string]func(*teststack.Config){"async": func(*teststack.Config) {}, "pool": pooled(0)}
	for seed := first; seed != first+seeds; seed++ {
		for name, backend := range backends {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) { hammerFrees(t, backend, seed, operations) })
		}
	}
}

func hammerFrees(t *testing.T, backend func(*teststack.Config), seed uint64, operations int) {
	h := &freeHammer{bench: newBench(t, backend), known: map[core.Generation]*freeRecord{}}
	must(t, h.Sim.RegisterModule("freehammer", sim.Kernel{Name: "touch", Declare: declareTouch, Run: h.runTouch}))
	module, err := cuda.LoadModule(h.Sim, driver.Image{Name: "freehammer"})
	must(t, err)
	h.touch, err = module.Kernel("touch")
	must(t, err)
	h.Backend.Subscribe(listener(h.released))
	h.streams = h.leases(4)
	var workers sync.WaitGroup
	for g := range 6 {
		workers.Go(func() {
			w := &freeWorker{freeHammer: h, rng: rand.New(rand.NewPCG(seed, uint64(g)))}
			for range operations {
				w.step()
			}
			if g == 0 {
				for i := 0; i < 20*operations && (h.captures.Load() == 0 || h.faulted.Load() == 0); i++ {
					w.step() // until all was met that the test is about
				}
				h.expected(h.Backend.Close(ctx)) // while the others end
			}
			w.finishAll()
			for i := range h.board {
				w.free(h.board[i].Swap(nil))
			}
		})
	}
	workers.Wait()
	h.faults.Clear()
	h.drain()
	must(t, h.Backend.ReapPending(ctx)) // forgets the last streams
	must(t, h.Backend.Close(ctx))
	h.judge(seed)
}

// freeHammer is what the goroutines share.
type freeHammer struct {
	*bench
	touch   *cuda.Kernel
	streams []*cuda.Lease
	board   [24]atomic.Pointer[freeRecord] // live blocks that anybody may use or free

	mu       sync.Mutex
	known    map[core.Generation]*freeRecord
	byNumber []*freeRecord

	refusals, faulted, captures atomic.Int64
}

// freeRecord is what the test knows of a block.
type freeRecord struct {
	number   int
	block    core.Block
	open     atomic.Int32 // launches prepared and not about to be finished
	enqueued atomic.Int32 // kernels that have not run
	released atomic.Int32
}

// touch((number, ptr, access)...) reads or writes the first word of each block.
func declareTouch(a sim.Args) (ranges []sim.Range) {
	for i := 0; i < a.Len(); i += 3 {
		ranges = append(ranges, sim.Range{Ptr: a.Ptr(i + 1), Bytes: 8, Access: core.Access(a.U32(i + 2))})
	}
	return ranges
}

func (h *freeHammer) runTouch(x *sim.Exec) {
	a := x.Args()
	for i := 0; i < a.Len(); i += 3 {
		if core.Access(a.U32(i + 2)).Writes() {
			sim.WriteSlice[uint64](x, a.Ptr(i+1), 1)[0] = a.U64(i)
		} else {
			sim.ReadSlice[uint64](x, a.Ptr(i+1), 1)
		}
		h.mu.Lock()
		r := h.byNumber[a.U64(i)]
		h.mu.Unlock()
		r.enqueued.Add(-1)
	}
}

func (h *freeHammer) know(b core.Block) *freeRecord {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &freeRecord{number: len(h.byNumber), block: b}
	h.byNumber = append(h.byNumber, r)
	h.known[b.ID.Generation] = r
	return r
}

func (h *freeHammer) released(b core.Block) {
	h.mu.Lock()
	r := h.known[b.ID.Generation]
	h.mu.Unlock()
	if r == nil {
		h.Errorf("block %v is released, and was never handed out", b.ID)
		return
	}
	if n := r.released.Add(1); n != 1 {
		h.Errorf("block %v is released %d times", b.ID, n)
	}
	open, enqueued := r.open.Load(), r.enqueued.Load()
	if open != 0 || enqueued != 0 && !h.Backend.Features().Has(core.OrderedRelease) {
		h.Errorf("block %v is released with %d launches open and %d kernels that have not run", b.ID, open, enqueued)
	}
}

// expected passes what may fail in the hammer: what conflicts, is captured, freed or
// closed, and faults.
func (h *freeHammer) expected(err error) bool {
	switch {
	case err == nil:
		return true
	case errors.Is(err, core.ErrDriver):
		h.faulted.Add(1)
	case errors.Is(err, core.ErrStreamMisuse), errors.Is(err, core.ErrUseAfterFree), errors.Is(err, core.ErrClosed):
		h.refusals.Add(1)
	default:
		h.Error(err)
	}
	return false
}

func (h *freeHammer) judge(seed uint64) {
	h.Helper()
	for _, r := range h.byNumber {
		if n := r.released.Load(); n != 1 {
			h.Errorf("block %v was released %d times", r.block.ID, n)
		}
	}
	st := h.Backend.Stats()
	if st.Outstanding() != (core.Amount{}) || st.OpenIntents != 0 || st.Underflows != 0 || st.Poisoned != 0 || st.Allocations != st.Deallocations {
		h.Errorf("left over: %+v", st)
	}
	if len(h.byNumber) == 0 || h.captures.Load() == 0 || h.faulted.Load() == 0 {
		h.Errorf("%d blocks, %d captures, %d faults: the test proves nothing", len(h.byNumber), h.captures.Load(), h.faulted.Load())
	}
	h.Logf("seed %d: %d blocks, %d captures, %d refused, %d faults met", seed, len(h.byNumber), h.captures.Load(), h.refusals.Load(), h.faulted.Load())
}

// freeWorker is one goroutine. Its launches stay open for a while.
type freeWorker struct {
	*freeHammer
	rng  *rand.Rand
	open []freeLaunch
}

type freeLaunch struct {
	ticket core.Ticket
	uses   []*freeRecord
}

func (w *freeWorker) stream() *cuda.Lease { return w.streams[w.rng.IntN(len(w.streams))] }

// take takes some block off the board, or nil.
func (w *freeWorker) take() *freeRecord { return w.board[w.rng.IntN(len(w.board))].Swap(nil) }

// put puts a block where there is room, or frees it.
func (w *freeWorker) put(r *freeRecord) {
	if r != nil && !w.board[w.rng.IntN(len(w.board))].CompareAndSwap(nil, r) {
		w.free(r)
	}
}

func (w *freeWorker) step() {
	switch n := w.rng.IntN(100); {
	case n < 30:
		w.put(w.allocate(w.stream()))
	case n < 50:
		w.launch(w.stream())
	case n < 65:
		w.finishOne()
	case n < 75:
		w.free(w.take())
	case n < 79:
		w.capture(w.stream())
	case n < 82:
		w.recordUse(w.stream())
	case n < 85:
		w.expected(w.Streams.Synchronize(ctx, w.stream().ID()))
	case n < 88:
		w.expected(w.Backend.TrimPool(0))
	case n < 92:
		w.expected(w.Backend.ReapPending(ctx))
	case n < 94:
		w.adopt()
	case n < 95:
		w.faults.FailMethod(drivertest.StreamCapturing, 1+w.rng.Uint64N(4), driver.CaptureImplicit)
	default:
		w.faults.FailMethod(freeFaults[w.rng.IntN(len(freeFaults))], 1+w.rng.Uint64N(4), driver.Unknown)
	}
}

// allocate allocates 8 bytes, an isolated block, or enough for frees to be looked at, or on the default stream.
func (w *freeWorker) allocate(on *cuda.Lease) *freeRecord {
	req := core.Request{Bytes: 8, Stream: on.ID()}
	switch w.rng.IntN(12) {
	case 0:
		req.Isolated = true
	case 1:
		req.Bytes = 8 << 20
	case 2, 3:
		req.Stream = core.DefaultStream
	}
	b, err := w.Backend.Allocate(ctx, req)
	if !w.expected(err) {
		return nil
	}
	return w.know(b)
}

// launch begins a launch over some blocks, and most often leaves it open.
func (w *freeWorker) launch(on *cuda.Lease) {
	var uses []*freeRecord
	var declared []core.Use
	access := core.Read // of which several launches may be open on a block
	if w.rng.IntN(3) == 0 {
		access = core.Write
	}
	for range 1 + w.rng.IntN(3) {
		if r := w.board[w.rng.IntN(len(w.board))].Load(); r != nil {
			uses = append(uses, r)
			declared = append(declared, core.Use{Block: r.block.ID, Access: access})
		}
	}
	ticket, err := w.Backend.PrepareUse(ctx, core.UseRequest{Stream: on.ID(), Uses: declared})
	if !w.expected(err) {
		return
	}
	var args []driver.Arg
	for _, r := range uses {
		r.open.Add(1)
		r.enqueued.Add(1)
		args = append(args, driver.U64(uint64(r.number)), driver.Ptr(r.block.ID.Ptr), driver.U32(uint32(access)))
	}
	if w.rng.IntN(8) == 0 {
		for _, r := range uses {
			r.enqueued.Add(-1)
			r.open.Add(-1)
		}
		w.expected(w.Backend.AbortUse(ctx, ticket))
		return
	}
	expect.Success(w, w.touch.Enqueue(on.Handle(), grid, args...))
	w.open = append(w.open, freeLaunch{ticket, uses})
	if len(w.open) > 2 {
		w.finishOne()
	}
}

func (w *freeWorker) finishOne() {
	if len(w.open) == 0 {
		return
	}
	l := w.open[0]
	w.open = w.open[1:]
	for _, r := range l.uses {
		r.open.Add(-1)
	}
	w.expected(w.Backend.FinishUse(ctx, l.ticket))
}

func (w *freeWorker) finishAll() {
	for len(w.open) > 0 {
		w.finishOne()
	}
}

// free frees a block that was taken off the board, however often the driver refuses.
func (w *freeWorker) free(r *freeRecord) {
	if r == nil {
		return
	}
	for {
		_, err := w.Backend.Deallocate(ctx, r.block.ID)
		if err == nil {
			return
		}
		if !errors.Is(err, core.ErrDriver) {
			w.Error(err)
			return
		}
		w.faulted.Add(1)
	}
}

// capture frees, reaps and records uses while a stream captures.
func (w *freeWorker) capture(on *cuda.Lease) {
	g, err := on.Capture(ctx, "hammer", nil, func(driver.Stream) error {
		w.captures.Add(1)
		for range 3 {
			w.free(w.take())
		}
		w.recordUse(on)
		w.expected(w.Backend.ReapPending(ctx))
		w.finishOne()
		return nil
	})
	if w.expected(err) {
		w.expected(g.Close())
	}
}

// recordUse records a use, of which there is no work.
func (w *freeWorker) recordUse(on *cuda.Lease) {
	if r := w.take(); r != nil {
		w.expected(w.Backend.RecordUse(ctx, r.block.ID, on.ID()))
		w.put(r)
	}
}

// adopt allocates and launches on a stream of the test's own, and gives it up with frees
// under way and blocks that live on.
func (w *freeWorker) adopt() {
	handle, err := w.Sim.StreamCreate()
	if err != nil {
		w.Error(err)
		return
	}
	l, err := w.Streams.Adopt(handle, "hammer")
	if err != nil {
		w.Error(err)
		return
	}
	w.finishAll()
	for range 4 {
		w.put(w.allocate(l))
	}
	w.launch(l)
	w.free(w.take())
	w.finishAll()
	for err := context.Canceled; err != nil; { // a fault may be in the way
		if err = l.Release(); !w.expected(err) {
			w.expected(w.Backend.ReapPending(ctx))
		}
	}
	expect.Success(w, w.Sim.StreamDestroy(handle))
}
