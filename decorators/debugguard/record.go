package debugguard

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/canary"
)

// record is what the ledger knows of one block. A million of them are to cost
// little, so it holds what every block needs and no more: what only a guarded
// one needs, or one whose stacks are kept, is reached through a pointer.
//
// Records of unguarded blocks are pooled by the shard of the ledger that they
// are in and never given back to Go: whoever found one without the shard's lock
// must check, under the record's, that it still belongs to the generation looked
// for. Those of guarded blocks are not pooled, because comparisons under way
// refer to them.
type record struct {
	// genState is the block's generation, and in the low bits its state; zero
	// while the record is of no block. It is set last and cleared first, so
	// whoever finds the generation that it looks for here may read the rest under
	// the lock. next is the chain's, see table.
	genState atomic.Uint64
	next     atomic.Pointer[record]
	// buried is the generation of a tombstone, whose genState is zero. It is
	// written without an atomic operation, which would wait for the memory.
	buried core.Generation
	// neighbour is the next record in the shard's index of addresses, or in its
	// list of empty ones.
	neighbour *record

	mu sync.Mutex
	// born and freed are when the block came and when it was released.
	born, freed instant

	ptr, requested, bytes uint64
	allocStream           core.StreamID
	tag                   core.Tag

	// guard is what a block guarded on the device needs, nil for any other. It
	// does not change.
	guard *guarded
	// extra is nil unless stacks or spans were kept.
	extra *extra

	// writer is the first launch known to have written the block, zero if none
	// is.
	writer uint64
	used   uint32 // uses in all
	align  uint8  // its logarithm
	flags  flags
	// ordinal is the device, of which there are at most core.MaxOrdinals.
	ordinal uint8
	// stacked is set before the block is handed out if it was chosen to keep
	// stacks.
	stacked bool
	uses    [usesKept]use
}

// flags are what else is known of a block.
type flags uint8

const (
	// readUnwritten is set if it was read before it was written and that was
	// reported.
	readUnwritten flags = 1 << iota
)

// extra is what is kept of some blocks only.
type extra struct {
	allocStack, freeStack core.Stack
	spans                 [usesKept]core.SpanRef
}

// guarded is what the guard knows of a block that it watches on the device.
type guarded struct {
	// layout shifts the caller's pointer; it does not change. armed is set
	// once the red zones are filled.
	layout canary.Layout
	armed  bool
	// isolated is set if nothing is mapped at its addresses behind the free; it
	// does not change.
	isolated bool
	// forwarded is set from the forwarding of the free until the release.
	forwarded atomic.Bool
	// open counts the intents open on the block; deferred is set if a free
	// waits for the last of them.
	open     int
	deferred bool
	// whole is set if all of the block is poisoned, and checked once its
	// last comparison is queued and only the free is left to do.
	whole, checked bool
	// unpoisoned is set if the block is in quarantine without poison, because it
	// could not be filled; poisonedAt is the tick before it was. Both belong to
	// the goroutine that frees the block.
	unpoisoned bool
	poisonedAt uint64
	// freedAt is when the block entered quarantine, clean the tick of the
	// launch log at the last comparison or at arming.
	freedAt time.Time
	clean   atomic.Uint64
	// canaryOf is set for a canary: whose its bytes were before.
	canaryOf *core.Block
	// filled counts the fillings of the red zones after the first. reported says at
	// which of them damage was last reported, for each kind of damage: what
	// several comparisons saw is reported once. It belongs to whoever holds
	// checks.reading.
	filled   atomic.Uint32
	reported map[core.FindingKind]uint32
}

// isNews reports whether damage of a kind, seen after so many fillings, is news.
func (g *guarded) isNews(kind core.FindingKind, filled uint32) bool {
	if at, ok := g.reported[kind]; ok && at >= filled {
		return false
	}
	if g.reported == nil {
		g.reported = map[core.FindingKind]uint32{}
	}
	g.reported[kind] = filled
	return true
}

// newGuarded returns the record of a guarded block, whose guard the caller
// fills in before anybody can find it. It is not pooled.
func newGuarded(b core.Block, born instant, allocated core.Stack) *record {
	made := new(struct {
		record  record
		guarded guarded
	})
	rec := &made.record
	rec.guard, rec.stacked, rec.extra = &made.guarded, true, &extra{allocStack: allocated}
	rec.fill(&b, born)
	return rec
}

// fill makes rec, which nobody can find yet, the record of b.
func (rec *record) fill(b *core.Block, born instant) {
	rec.ptr, rec.requested, rec.bytes = b.ID.Ptr, b.Requested, b.Bytes
	rec.allocStream, rec.tag = b.ID.AllocStream, b.Tag
	rec.align = uint8(bits.TrailingZeros64(b.Align))
	rec.ordinal, rec.born = uint8(b.ID.Ordinal), born
	rec.genState.Store(genStateOf(b.ID.Generation, b.State))
}

// block is the block as its owner knows it now. What follows are parts of it.
func (rec *record) block() core.Block {
	return core.Block{ID: rec.id(), Requested: rec.requested, Bytes: rec.bytes, Align: 1 << rec.align, Tag: rec.tag, State: rec.state()}
}

func (rec *record) id() core.BlockID {
	return core.BlockID{Ptr: rec.ptr, Generation: rec.generation(), AllocStream: rec.allocStream, Ordinal: int(rec.ordinal)}
}

func (rec *record) generation() core.Generation {
	if gs := rec.genState.Load(); gs != 0 {
		return core.Generation(gs >> stateBits)
	}
	return rec.buried
}

func (rec *record) stream() core.StreamID { return rec.allocStream }
func (rec *record) state() core.BlockState {
	if gs := rec.genState.Load(); gs != 0 {
		return core.BlockState(gs & (1<<stateBits - 1))
	}
	return core.Freed
}

// setState moves the block on; mu must be held.
func (rec *record) setState(s core.BlockState) { rec.genState.Store(genStateOf(rec.generation(), s)) }

// retire takes the block of generation g from Live to Retired, without the
// lock, and reports whether it was this caller who did.
func (rec *record) retire(g core.Generation) bool {
	return rec.genState.CompareAndSwap(genStateOf(g, core.Live), genStateOf(g, core.Retired))
}

// isLive reports whether the record is that of the live block of generation g;
// it may be asked without the lock.
func (rec *record) isLive(g core.Generation) bool {
	return rec.genState.Load() == genStateOf(g, core.Live)
}

// peek reports whether the record is of generation g, and whether that is live,
// of one instant and without the lock.
func (rec *record) peek(g core.Generation) (known, live bool) {
	gs := rec.genState.Load()
	return gs>>stateBits == uint64(g), gs == genStateOf(g, core.Live)
}

// revive makes the block of generation g live again if it is retired, and not
// released; mu must be held.
func (rec *record) revive(g core.Generation) {
	if rec.genState.CompareAndSwap(genStateOf(g, core.Retired), genStateOf(g, core.Live)) && rec.extra != nil {
		rec.extra.freeStack = nil
	}
}

// setFreeStack keeps the stack of the free, setAllocStack that of the allocation;
// mu must be held.
func (rec *record) setFreeStack(stack core.Stack)  { rec.more().freeStack = stack }
func (rec *record) setAllocStack(stack core.Stack) { rec.more().allocStack = stack }

const stateBits = 3

func genStateOf(g core.Generation, s core.BlockState) uint64 { return uint64(g)<<stateBits | uint64(s) }

// describe is the block of generation g for whoever has not locked the record;
// it is of no generation if the record is not that block's any more.
func (rec *record) describe(g core.Generation) core.Block {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if rec.generation() != g {
		return core.Block{}
	}
	return rec.block()
}

// becomeTombstone makes rec, which is of no block, the tombstone of another
// record, which is locked.
func (rec *record) becomeTombstone(other *record, freed instant) {
	rec.born, rec.freed = other.born, freed
	rec.ptr, rec.requested, rec.bytes = other.ptr, other.requested, other.bytes
	rec.allocStream, rec.tag, rec.extra = other.allocStream, other.tag, other.extra
	rec.writer, rec.used = other.writer, other.used
	copy(rec.uses[:], other.uses[:min(other.used, usesKept)])
	rec.align, rec.flags, rec.ordinal = other.align, other.flags, other.ordinal
	rec.buried = other.generation()
}

// contains reports whether an address lies in the block; mu must be held.
func (rec *record) contains(ptr uint64) bool { return ptr-rec.ptr < rec.bytes }

// keepStacks says that the block was chosen to keep its stacks, before it is
// handed out; keepsStacks reports it.
func (rec *record) keepStacks()       { rec.stacked = true }
func (rec *record) keepsStacks() bool { return rec.stacked }

// more returns the side of rec for what few blocks have; mu must be held.
func (rec *record) more() *extra {
	if rec.extra == nil {
		rec.extra = &extra{}
	}
	return rec.extra
}

// stacks are those of the allocation and of the free, as far as they were
// kept; mu must be held.
func (rec *record) stacks() (allocated, freed core.Stack) {
	if rec.extra == nil {
		return nil, nil
	}
	return rec.extra.allocStack, rec.extra.freeStack
}

// footprint is what the block takes of the device below the guard.
func (rec *record) footprint() core.Amount {
	bytes := rec.bytes
	if rec.guard != nil {
		bytes = rec.guard.layout.Total()
	}
	return core.Amount{Bytes: bytes, Requested: rec.requested, Blocks: 1}
}

// inner names a guarded block to the upstream by its true beginning.
func (rec *record) inner() core.BlockID {
	id := rec.id()
	id.Ptr = rec.guard.layout.Base
	return id
}

// readsUnwritten reports whether an access reads what nobody wrote, which was
// not reported yet; mu must be held.
func (rec *record) readsUnwritten(a core.Access) bool {
	return a == core.Read && rec.writer == 0 && rec.flags&readUnwritten == 0
}

// unwritten reports whether no launch is known to have written the block; mu must
// be held.
func (rec *record) unwritten() bool { return rec.writer == 0 }

// markReadUnwritten notes that such a read was reported; mu must be held.
func (rec *record) markReadUnwritten() { rec.flags |= readUnwritten }

// watched reports whether a guarded block is live, or freed and kept by an intent.
func (rec *record) watched() bool {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.state() == core.Live || rec.guard.deferred
}
