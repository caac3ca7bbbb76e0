package history

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
)

// memory is what belongs to a block.
type memory struct {
	id               core.BlockID
	bytes, requested uint64
	tag              core.Tag
}

func (h *memory) end() uint64 { return h.id.Ptr + h.bytes }

func memoryOfBlock(b core.Block) memory {
	return memory{id: b.ID, bytes: max(b.Bytes, b.Requested, 1), requested: max(b.Requested, 1), tag: b.Tag.OrUntagged()}
}

func memoryOfEvent(e *core.Event) memory {
	return memoryOfBlock(core.Block{ID: e.Block, Bytes: e.Bytes, Requested: e.Requested, Tag: e.Tag})
}

// book is what a history says of the blocks of one device.
//
// A history has lost its beginning, and perhaps records in between. So a
// block may be freed that was never allocated in it: that one was there from
// the beginning, unless another one had its addresses then. And addresses may
// be allocated that somebody still has: the device passes memory on in stream
// order before the runtime hears of it, so the older block is gone by then.
type book struct {
	ordinal int
	// releases is set if the log has them, which is so if it has launches: both
	// are of the level Uses. If not, a free is also the release.
	releases bool
	// allocated are the blocks whose allocation is in the history, places the
	// same by address.
	allocated map[core.Generation]bool
	places    []memory
	// early are the others, retired if they were freed before.
	early map[core.Generation]listedBlock
}

func newBook(ordinal int) *book {
	return &book{ordinal: ordinal, allocated: map[core.Generation]bool{}, early: map[core.Generation]listedBlock{}}
}

// maxAddress is beyond what any device has. Sums of it do not overflow.
const maxAddress = 1 << 62

var errAddress = errors.New("the block lies beyond what an address can be")

// enter takes note of an event before the history is replayed.
func (b *book) enter(e *core.Event) error {
	switch e.Op {
	case core.OpPrepare, core.OpFinish, core.OpAbort, core.OpRecord, core.OpRelease:
		b.releases = true
	}
	if !concernsBlock(e) {
		return nil
	}
	if e.Block.Ptr >= maxAddress || e.Bytes >= maxAddress || e.Requested >= maxAddress {
		return fmt.Errorf("%v of %v: %w", e.Op, e.Block, errAddress)
	}
	g := e.Block.Generation
	_, early := b.early[g]
	switch {
	case e.Op == core.OpAllocate:
		b.allocated[g] = true
		b.places = append(b.places, memoryOfEvent(e))
		delete(b.early, g) // recorded late
	case b.allocated[g] || early:
	case e.Op == core.OpRelease:
		b.early[g] = listedBlock{memory: memoryOfEvent(e), state: core.Retired}
	default:
		b.early[g] = listedBlock{memory: memoryOfEvent(e), state: core.Live}
	}
	return nil
}

// concernsBlock reports whether e changes what is allocated.
func concernsBlock(e *core.Event) bool {
	if e.Err != nil || e.Block.Generation == 0 {
		return false
	}
	return e.Op == core.OpAllocate || e.Op == core.OpDeallocate || e.Op == core.OpRelease
}

// complete adds a block that is held now, if the history does not know it.
func (b *book) complete(l listedBlock) {
	g := l.id.Generation
	if _, early := b.early[g]; early || b.allocated[g] || l.id.Ptr >= maxAddress || l.bytes >= maxAddress {
		return
	}
	b.early[g] = l
}
