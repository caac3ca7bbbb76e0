package debugguard

import (
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// usesKept is how many uses of a block the ledger remembers.
const usesKept = 4

// record is what the ledger knows of one block. Records of unguarded blocks
// are pooled: whoever got one from the map must check, under its lock, that
// it still is of the generation looked for. Those of guarded blocks are not,
// because comparisons under way refer to them.
type record struct {
	mu sync.Mutex
	// block is the block as its owner knows it; its State is kept current.
	block core.Block
	// guarded is set if the caller's pointer is shifted by layout; it does
	// not change. armed is set once the red zones are filled.
	guarded, armed bool
	layout         layout
	// open counts the intents open on a guarded block; deferred is set if a
	// free waits for the last of them.
	open     int
	deferred bool
	// whole is set if all of the block is poisoned, and checked once its
	// last comparison is queued and only the free is left to do.
	whole, checked bool
	// freedAt is when the block entered quarantine, clean the tick of the
	// launch log at the last comparison or at arming.
	freedAt time.Time
	clean   uint64

	// stacked is set if the block was chosen to keep stacks.
	stacked               bool
	allocStack, freeStack core.Stack
	uses                  [usesKept]core.UseRecord
	used                  uint64 // uses in all
}

// note adds a use; mu must be held.
func (rec *record) note(u core.UseRecord) {
	rec.uses[rec.used%usesKept] = u
	rec.used++
}

// traced completes a use with the span that it got after it was prepared; mu
// must be held.
func (rec *record) traced(launch uint64, span core.SpanRef) {
	for i := range rec.uses {
		if rec.uses[i].LaunchID == launch {
			rec.uses[i].Span = span
		}
	}
}

// retract takes back the use by a launch that was aborted; mu must be held.
// An older use that it displaced is not brought back.
func (rec *record) retract(launch uint64) {
	for i := range rec.uses {
		if rec.uses[i].LaunchID != launch {
			continue
		}
		rec.uses[i] = core.UseRecord{}
		if uint64(i) == (rec.used-1)%usesKept {
			rec.used--
		}
	}
}

// lastUses returns the uses kept, newest first, and how many are forgotten;
// mu must be held.
func (rec *record) lastUses() (uses []core.UseRecord, older uint64) {
	for i := range min(rec.used, usesKept) {
		if u := rec.uses[(rec.used-1-i)%usesKept]; u != (core.UseRecord{}) {
			uses = append(uses, u)
		}
	}
	return uses, rec.used - uint64(len(uses))
}

// info describes the block to an inspector.
func (rec *record) info() core.BlockInfo {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	uses, _ := rec.lastUses()
	return core.BlockInfo{Block: rec.block, AllocStack: rec.allocStack, Uses: uses}
}

// held is what the block takes of the device below the guard.
func (rec *record) held() core.Amount {
	bytes := rec.block.Bytes
	if rec.guarded {
		bytes = rec.layout.total()
	}
	return core.Amount{Bytes: bytes, Requested: rec.block.Requested, Blocks: 1}
}

// inner names a guarded block to the upstream by its true beginning.
func (rec *record) inner() core.BlockID {
	id := rec.block.ID
	id.Ptr = rec.layout.base
	return id
}
