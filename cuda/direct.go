package cuda

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/internal/books"
	"github.com/fencepost-gpu/fencepost/internal/listeners"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

// DirectResource is the plain backend: every block is a driver allocation of
// its own (cuMemAlloc, cuMemFree), in no stream's order, so that sanitizers
// see each one. It is the original's DirectCudaResource. It tracks no uses:
// PrepareUse, FinishUse, AbortUse and RecordUse answer with
// [core.StreamMisuseError], and the caller orders streams before a free. It is
// safe for concurrent use; allocations and frees may block on the device.
type DirectResource struct {
	core.Unsupported
	drv driver.Driver

	listeners listeners.List
	books     streamBooks
	group     books.Group
	windows   *books.Windows
}

var _ core.Resource = (*DirectResource)(nil)

// NewDirectResource returns a backend over drv. It needs no closing.
func NewDirectResource(drv driver.Driver) *DirectResource {
	r := &DirectResource{Unsupported: core.Unsupported{Resource: "direct(" + deviceName(drv) + ")"}, drv: drv}
	r.books.joins(&r.group, new(path.Lane), rememberedBlocks)
	r.windows = books.NewWindows(&r.group, time.Now())
	return r
}

// Allocate makes a driver allocation; r.Stream is only noted. It may block. An
// isolated block is refused with an error that matches errors.ErrUnsupported.
func (r *DirectResource) Allocate(_ context.Context, req core.Request) (core.Block, error) {
	if err := req.Normalize("Allocate"); err != nil {
		return core.Block{}, err
	}
	if req.Isolated { // its free would give the addresses back, too
		return core.Block{}, refuse.Unsupported("Allocate of an isolated block", r.Resource, "use cuda.AsyncResource, which maps memory")
	}
	ptr, err := r.drv.MemAlloc(req.Bytes)
	if err != nil {
		r.books.Fails.Add(1)
		return core.Block{}, err
	}
	var b core.Block
	describe(&b, &req, ptr, r.drv.Ordinal())
	if o := driver.OracleOf(r.drv); o != nil {
		tellOwner(o, &req, ptr)
	}
	record := new(block)
	record.be(nil, &b, &req, 0)
	r.books.admit(&r.group, record)
	return b, nil
}

// Deallocate frees the block at once; the driver waits for the device.
func (r *DirectResource) Deallocate(_ context.Context, id core.BlockID) (core.Block, error) {
	requested := monotime.Now()
	record, err := r.take(id)
	if err != nil {
		return core.Block{}, err
	}
	b := record.core
	if err := r.drv.MemFree(b.ID.Ptr); err != nil {
		r.books.Fails.Add(1)
		record.mu.Lock()
		record.core.State = core.Live
		record.mu.Unlock()
		return core.Block{}, err
	}
	r.books.Retire(&record.core, &record.entry)
	r.books.release(record, monotime.Now().Since(requested))
	b.State = core.Freed
	r.listeners.Released(nil, b)
	return b, nil
}

// take retires the block that id names, so that only one of two frees reaches the driver.
func (r *DirectResource) take(id core.BlockID) (*block, error) {
	if id.Ordinal != r.drv.Ordinal() {
		return nil, &core.StreamMisuseError{Op: "Deallocate", Block: id,
			Reason: fmt.Sprintf("the block belongs to device %d, this resource serves device %d", id.Ordinal, r.drv.Ordinal())}
	}
	b := r.books.find(id.Generation)
	if b == nil {
		return nil, &core.UseAfterFreeError{Op: "Deallocate", Generation: id.Generation, Block: id, State: core.Freed}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.check("Deallocate", id, id.AllocStream); err != nil {
		return nil, err
	}
	b.core.State = core.Retired
	return b, nil
}

// ReapPending has nothing to do: frees are synchronous.
func (r *DirectResource) ReapPending(context.Context) error { return nil }

// Drain has nothing to wait for: frees are synchronous.
func (r *DirectResource) Drain(context.Context) error { return nil }

// State is Live or Freed.
func (r *DirectResource) State(id core.BlockID) core.BlockState {
	if b := r.books.find(id.Generation); b != nil && id.Ordinal == r.drv.Ordinal() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.core.State == core.Live {
			return core.Live
		}
	}
	return core.Freed
}

// Stats is a snapshot of the books; nothing is ever pending.
func (r *DirectResource) Stats() core.Stats {
	var st core.Stats
	r.group.AddPeaksTo(&st)
	r.books.addTo(&st)
	return st
}

// FreedOn is zero: frees are in no stream's order.
func (r *DirectResource) FreedOn(core.StreamID) core.FreeCounters { return core.FreeCounters{} }

// Subscribe adds a listener for released blocks.
func (r *DirectResource) Subscribe(l core.Listener) { r.listeners.Add(l) }

// blocks lists the live blocks.
func (r *DirectResource) blocks(yield func(core.BlockInfo) bool) {
	r.books.list(func(b core.BlockInfo) bool { return b.Block.State != core.Live || yield(b) })
}

// Ordinal is the device's.
func (r *DirectResource) Ordinal() int { return r.drv.Ordinal() }

// Features is none.
func (r *DirectResource) Features() core.Features { return 0 }

// Unwrap is nil: this is a backend.
func (r *DirectResource) Unwrap() core.Resource { return nil }

// String is "direct(sim:0)".
func (r *DirectResource) String() string { return r.Resource }
