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
	// known is the block as its owner knows it; its State is kept current.
	known core.Block
	// guard is what a block guarded on the device needs, nil for any other. It
	// does not change.
	guard *guarded

	// stacked is set if the block was chosen to keep stacks.
	stacked               bool
	allocStack, freeStack core.Stack
	uses                  [usesKept]core.UseRecord
	used                  uint64 // uses in all
}

// guarded is what the guard knows of a block that it watches on the device.
type guarded struct {
	// layout shifts the caller's pointer; it does not change. armed is set
	// once the red zones are filled.
	layout layout
	armed  bool
	// isolated is set if nothing is mapped at its addresses behind the free; it
	// does not change.
	isolated bool
	// open counts the intents open on the block; deferred is set if a free
	// waits for the last of them.
	open     int
	deferred bool
	// whole is set if all of the block is poisoned, and checked once its
	// last comparison is queued and only the free is left to do.
	whole, checked bool
	// freedAt is when the block entered quarantine, clean the tick of the
	// launch log at the last comparison or at arming.
	freedAt time.Time
	clean   uint64
}

// newGuarded returns the record of a guarded block. It is not pooled.
func newGuarded(b core.Block, g guarded, allocated core.Stack) *record {
	rec := &record{guard: &g, stacked: true, allocStack: allocated}
	rec.fill(b)
	return rec
}

// fill makes rec the record of b.
func (rec *record) fill(b core.Block) { rec.known = b }

// block is the block as its owner knows it now. What follows are parts of it.
func (rec *record) block() core.Block           { return rec.known }
func (rec *record) id() core.BlockID            { return rec.known.ID }
func (rec *record) generation() core.Generation { return rec.known.ID.Generation }
func (rec *record) stream() core.StreamID       { return rec.known.ID.AllocStream }
func (rec *record) state() core.BlockState      { return rec.known.State }

// setState moves the block on; mu must be held.
func (rec *record) setState(s core.BlockState) { rec.known.State = s }

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
	return core.BlockInfo{Block: rec.block(), AllocStack: rec.allocStack, Uses: uses}
}

// held is what the block takes of the device below the guard.
func (rec *record) held() core.Amount {
	b := rec.block()
	if rec.guard != nil {
		b.Bytes = rec.guard.layout.total()
	}
	return core.Amount{Bytes: b.Bytes, Requested: b.Requested, Blocks: 1}
}

// inner names a guarded block to the upstream by its true beginning.
func (rec *record) inner() core.BlockID {
	id := rec.id()
	id.Ptr = rec.guard.layout.base
	return id
}
