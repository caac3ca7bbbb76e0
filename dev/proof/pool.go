package proof

import (
	"errors"
	"fmt"
	"math"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/dev/proof/device"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

const (
	// PoolUnits is how many units a page of the pool's has.
	PoolUnits = device.PageBytes / device.Unit
	// PoolPages is how many pages the pool may have.
	PoolPages = 3
)

// PoolSizes are those of blocks from the pool, in units: half a page, one and two.
var PoolSizes = []uint8{PoolUnits / 2, PoolUnits, 2 * PoolUnits}

// hosted is a pool of the runtime's own: the device sees neither its allocations nor its
// frees, so the runner puts them into the history.
type hosted struct {
	device *device.Device
	// home is the stream of a block's allocation.
	home [program.MaxBlocks]uint8
	// ended are streams that were given up; backstop is where the blocks of those are freed, made for the
	// first of them, and 0 before.
	ended    map[uint8]bool
	backstop uint8
	// open are by operation the launches that have not ended; retired the blocks whose
	// free waits for those.
	open    map[uint8]program.Op
	retired program.Set
	// told are blocks that were said to be reusable in this step.
	told []uint8
	// left is the first operation that is left out: an allocation was refused for want of
	// memory.
	left int
}

func newHosted(d *device.Device) *hosted {
	return &hosted{device: d, open: map[uint8]program.Op{}, ended: map[uint8]bool{}}
}

func (h *hosted) begin() {
	clear(h.open)
	h.retired, h.told, h.left = 0, h.told[:0], math.MaxInt
}

// allocating says to the device that a block is about to be allocated.
func (h *hosted) allocating(of program.Op, stream uint8) {
	for _, o := range h.open {
		if o.Stream == of.Stream {
			h.device.Allocating(stream)
		}
	}
}

// allocated puts an allocation into the history.
func (h *hosted) allocated(b *core.Block, stream uint8) error {
	h.home[h.device.Block] = stream
	h.device.Locate(b.ID.Ptr, b.Bytes)
	return h.device.Allocated(stream)
}

// endStep puts the frees into the history that a step has queued, and looks whether the
// listeners were told of a block too early: before its free was queued, or while another stream uses
// it. The next allocation in the memory comes behind both, which the history is judged for.
func (h *hosted) endStep() error {
	var open program.Set
	for _, o := range h.open {
		open |= o.Uses()
	}
	freed := h.retired &^ open
	for b := range freed.All() {
		if err := h.device.FreedOn(h.freedOn(h.home[b]), b, freed.Len() > 1); err != nil {
			return err
		}
	}
	h.retired &= open
	for _, b := range h.told {
		if h.retired.Has(b) || h.device.InUse(b) {
			return fmt.Errorf("%w: block %d", ErrEarly, b)
		}
	}
	h.told = h.told[:0]
	return nil
}

// freedOn is the stream on which the blocks of a stream are freed.
func (h *hosted) freedOn(stream uint8) uint8 {
	if !h.ended[stream] {
		return stream
	}
	if h.backstop == 0 {
		h.backstop = h.device.Newest()
	}
	return h.backstop
}

// refuses reports whether an allocation was refused for want of memory, and ends the
// program there. Pages without an owner must not lack for it, wherever they are.
func (h *hosted) refuses(err error, op, units uint8) (bool, error) {
	if h == nil || !errors.Is(err, core.ErrOutOfMemory) {
		return false, err
	}
	h.left = int(op)
	if free := h.device.Idle() + PoolPages - h.device.Held(); free*PoolUnits >= int(units) {
		return true, fmt.Errorf("%w: %d units are refused, and %d pages have no owner: %w", ErrAnswer, units, free, err)
	}
	return true, nil
}

// leavesOut reports whether a step is left out because its operation came after a refusal.
func (h *hosted) leavesOut(step Step) bool { return h != nil && int(step.Op) >= h.left }

// Moves is what the runtime's own pool did in all runs that were settled.
func (r *Runner) Moves() Moves { return r.moves }

// Did is what it did since BeginMoves.
func (r *Runner) Did() (m Moves) {
	once := func(is bool) uint64 {
		if is {
			return 1
		}
		return 0
	}
	if !r.config.Over.IsOwnPool() {
		return m
	}
	if r.entry != nil {
		m = r.entry.moves
	}
	did, before, now := r.device.Reuse, &r.pooled, r.Backend.Stats().OwnPool
	m.Reuses, m.Splits, m.Merges, m.Joins = once(did.Any), once(did.Split), once(did.Merged), once(did.Joined)
	m.Takeovers, m.Steals = once(now.Takeovers.Count > before.Takeovers.Count), once(now.Steals.Count > before.Steals.Count)
	m.Remaps, m.Growths = once(now.Remaps.Count > before.Remaps.Count), once(now.Growths.Count > before.Growths.Count)
	m.Refusals = once(r.outOfMemory > 0)
	return m
}

// settlePool looks whether the pool gives everything back, and counts what it did.
func (r *Runner) settlePool() error {
	r.moves.Add(r.Did())
	if err := r.Backend.TrimPool(0); err != nil {
		return err
	}
	if n := r.device.Held(); n > 0 {
		return fmt.Errorf("%w: %d", ErrLeft, n)
	}
	return nil
}
