package coretest

import (
	"maps"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

// books is the suite's own account of blocks, against which the resource's
// notices are checked: each block is released exactly once, with the sizes
// and the tag with which it was allocated.
type books struct {
	mu       sync.Mutex
	blocks   map[core.Generation]booked
	released map[core.Generation][]core.Block
}

// booked is a block and the size in bytes that was asked of the resource.
type booked struct {
	core.Block
	asked uint64
}

func newBooks() *books {
	return &books{blocks: map[core.Generation]booked{}, released: map[core.Generation][]core.Block{}}
}

func (k *books) allocated(b core.Block, asked uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.blocks[b.ID.Generation] = booked{b, asked}
}

// Released notes a notice. Blocks that the suite did not allocate through the
// outermost layer are noted too, and not judged.
func (k *books) Released(b core.Block) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.released[b.ID.Generation] = append(k.released[b.ID.Generation], b)
}

// notices is how often the block's release was told.
func (k *books) notices(b core.Block) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.released[b.ID.Generation])
}

// settle checks the notices of all blocks, when everything was drained.
func (k *books) settle(t *trial) {
	t.Helper()
	k.mu.Lock()
	blocks, released := maps.Clone(k.blocks), maps.Clone(k.released)
	k.mu.Unlock()
	for g, b := range blocks {
		notices := released[g]
		if len(notices) != 1 {
			t.check(false, "block %v was released %d times, want once", b.ID, len(notices))
			continue
		}
		n := notices[0]
		t.check(n.Requested == b.Requested && n.Bytes == b.asked && n.Tag == b.Tag,
			"block %v was released as %d/%d bytes %q, asked for as %d/%d bytes %q", b.ID, n.Requested, n.Bytes, n.Tag, b.Requested, b.asked, b.Tag)
		t.check(n.State == core.Freed, "block %v was released in state %v", b.ID, n.State)
	}
}
