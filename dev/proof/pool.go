package proof

import (
	"errors"
	"fmt"
	"math"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/dev/proof/device"
	"github.com/fencepost-gpu/fencepost/dev/proof/oracle"
	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

const (
	// PoolUnits is how many units a page of the pool's has.
	PoolUnits = device.PageBytes / device.Unit
	// PoolPages is how many pages the pool may have.
	PoolPages = 3
)

// ErrLeft means that the pool has pages that nobody uses and that it does not give back.
var ErrLeft = errors.New("pages are left when all is freed and trimmed")

// Moves is in how many runs the pool did what.
type Moves struct {
	// Reuses gave a block memory of an earlier one, Splits a part of one's, Merges that of
	// several, and Joins that of several streams.
	Reuses, Splits, Merges, Joins uint64
	// The others are those of [core.OwnPoolStats], and Refusals for want of memory.
	Takeovers, Steals, Remaps, Growths, Refusals uint64
}

// Add adds other runs.
func (m *Moves) Add(o Moves) { addCounters(m, o) }

// Reach reports whether there are as many runs of each kind as in floor.
func (m Moves) Reach(floor Moves) bool { return reachCounters(m, floor) }

// String is such as "reuses=93 splits=20 merges=3 joins=1 takeovers=2 steals=31 remaps=4 growths=191 refusals=50".
func (m Moves) String() string {
	return fmt.Sprintf("reuses=%d splits=%d merges=%d joins=%d takeovers=%d steals=%d remaps=%d growths=%d refusals=%d",
		m.Reuses, m.Splits, m.Merges, m.Joins, m.Takeovers, m.Steals, m.Remaps, m.Growths, m.Refusals)
}

// hosted is a pool of the runtime's own: the device sees neither its allocations nor its
// frees, so the runner puts them into the history.
type hosted struct {
	resource Backend
	device   *device.Device
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
	left   int
	before core.OwnPoolStats
	run    Moves
	moves  Moves
}

func newHosted(d *device.Device, backend Backend) *hosted {
	return &hosted{resource: backend, device: d, open: map[uint8]program.Op{}, ended: map[uint8]bool{}}
}

// Moves is what the runtime's own pool did in all runs.
func (r *Runner) Moves() Moves {
	if r.pool == nil {
		return Moves{}
	}
	return r.pool.moves
}

func (h *hosted) begin() {
	clear(h.open)
	h.retired, h.told, h.left = 0, h.told[:0], math.MaxInt
	h.before, h.run = h.resource.Stats().OwnPool, Moves{}
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
	if err := h.device.Allocated(stream); err != nil {
		return err
	}
	h.run.Note(h.device.History)
	return nil
}

// Note notes whose memory the newest block of a run has, whose allocation is the last node.
func (m *Moves) Note(h *oracle.History) {
	nodes := h.Nodes()
	block := nodes[len(nodes)-1]
	var owners, homes int
	var seen oracle.Cells
	var streams uint64
	for i := len(nodes) - 1; i >= 0; i-- {
		n := &nodes[i]
		if n.Kind != oracle.Free || n.Cells&block.Cells&^seen == 0 {
			continue
		}
		owners++
		seen |= n.Cells
		if at := uint64(1) << n.Stream; streams&at == 0 {
			streams |= at
			homes++
		}
		if n.Cells&^block.Cells != 0 {
			m.Splits = 1
		}
	}
	if owners > 0 {
		m.Reuses = 1
	}
	if owners > 1 {
		m.Merges = 1
	}
	if homes > 1 {
		m.Joins = 1
	}
}

// NoteSince notes what the pool did in a run, between two readings of its counts.
func (m *Moves) NoteSince(before, now *core.OwnPoolStats) {
	m.Takeovers = min(1, now.Takeovers.Count-before.Takeovers.Count)
	m.Steals = min(1, now.Steals.Count-before.Steals.Count)
	m.Remaps = min(1, now.Remaps.Count-before.Remaps.Count)
	m.Growths = min(1, now.Growths.Count-before.Growths.Count)
}

// endStep puts the frees into the history that a step has queued, and looks whether the
// listeners were told of a block too early: before its free was queued. Whoever gets the memory
// then comes behind that, which the history is judged for.
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
		if h.retired.Has(b) {
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
// program there. Pages that nobody has must not lack for it, wherever they are.
func (h *hosted) refuses(err error, op, units uint8) (bool, error) {
	if h == nil || !errors.Is(err, core.ErrOutOfMemory) {
		return false, err
	}
	h.left, h.run.Refusals = int(op), 1
	if free := h.device.Idle() + PoolPages - h.device.Held(); free*PoolUnits >= int(units) {
		return true, fmt.Errorf("%w: %d units are refused, and nobody has %d pages: %w", ErrAnswer, units, free, err)
	}
	return true, nil
}

// leavesOut reports whether a step is left out because its operation came after a refusal.
func (h *hosted) leavesOut(step Step) bool { return h != nil && int(step.Op) >= h.left }

// settle looks whether the pool gives everything back, and counts what it did.
func (h *hosted) settle() error {
	now := h.resource.Stats().OwnPool
	h.run.NoteSince(&h.before, &now)
	h.moves.Add(h.run)
	if err := h.resource.TrimPool(0); err != nil {
		return err
	}
	if n := h.device.Held(); n > 0 {
		return fmt.Errorf("%w: %d", ErrLeft, n)
	}
	return nil
}
