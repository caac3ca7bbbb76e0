package ledger

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/blocktable"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// Record is what the ledger knows of one block. A million of them are to cost
// little, so it holds what every block needs and no more: what only a guarded
// one needs, or one whose stacks are kept, is reached through a pointer.
//
// Records of unguarded blocks are used again for other blocks: a reader that found one
// must check, under the record's lock, that it still belongs to the generation looked
// for. Those of guarded blocks are not, because comparisons under way
// refer to them.
type Record struct {
	// word has the block's generation, its state and the record's lock, and is
	// zero while the record is of no block. It is set last and cleared first,
	// so a reader that has locked the generation that it looks for may read the rest.
	word atomic.Uint64
	// tombstoneOf is the generation of a tombstone, whose word is zero. It is
	// written without an atomic operation, which would wait for the memory.
	tombstoneOf core.Generation
	// neighbour is the next record in the shard's index of addresses.
	neighbour *Record

	// What follows belongs to who holds the lock, but for Guard, which does not change.

	// born is when the block was allocated.
	born monotime.Instant

	// Ptr and Bytes are the block's bytes as its owner knows them, Tag its tag.
	Ptr, requested, Bytes uint64
	allocStream           core.StreamID
	Tag                   core.Tag

	// Guard is what a block guarded on the device needs, nil for any other.
	Guard *Guarded
	// extra is nil unless stacks or spans were kept.
	extra *extra

	// writer is the first launch known to have written the block, zero if none
	// is.
	writer uint64
	used   uint32 // uses in all
	align  uint8  // its logarithm
	// readUnwritten is set if it was read before it was written and that was
	// reported.
	readUnwritten bool
	// ordinal is the device, of which there are at most core.MaxOrdinals.
	ordinal uint8
	// Stacked is set before the block is handed out if it was chosen to keep
	// stacks.
	Stacked bool
	// shard is the number of the block's.
	shard uint16
	// indexed: the record is in the shard's index of addresses, whose lock guards it.
	indexed bool
	// kept: the record is of no block, and stays in the books for the next block there (package
	// path).
	kept bool
	uses [usesKept]Use
}

// Part is the guard's part of the record that all layers share of a block (package path).
type Part struct {
	// guarded is the record of a block that is guarded on the device, while the ledger has it; own is that
	// of any other.
	guarded atomic.Pointer[Record]
	own     Record
}

// of is the record of the block of generation g, nil if the ledger has none; p may be nil.
func (p *Part) of(g core.Generation) *Record {
	if p == nil {
		return nil
	}
	if rec := p.now(); rec.isOf(g) {
		return rec
	}
	return nil
}

// now is the record of whichever block it is.
func (p *Part) now() *Record {
	if rec := p.guarded.Load(); rec != nil {
		return rec
	}
	return &p.own
}

// isOf reports whether the record is of generation g. It may be asked without the lock.
func (rec *Record) isOf(g core.Generation) bool {
	return rec.word.Load()>>blocktable.StateBits == uint64(g) && g != 0
}

// extra is what is kept of some blocks only. The spans of the allocation and of
// the free are those in force then, exported or not; they and the time of the free are
// kept where the stacks are.
type extra struct {
	freed                 monotime.Instant
	allocStack, freeStack core.Stack
	allocSpan, freeSpan   core.SpanContext
	spans                 [usesKept]core.SpanRef
}

// fill makes rec, which cannot be found yet, the record of b.
func (rec *Record) fill(b *core.Block, born monotime.Instant) {
	rec.Ptr, rec.requested, rec.Bytes = b.ID.Ptr, b.Requested, b.Bytes
	rec.allocStream, rec.Tag = b.ID.AllocStream, b.Tag
	rec.align = uint8(bits.TrailingZeros64(b.Align))
	rec.ordinal, rec.born = uint8(b.ID.Ordinal), born
	rec.word.Store(wordOf(b.ID.Generation, b.State))
}

// Block is the block as its owner knows it now; the lock must be held.
func (rec *Record) Block() core.Block {
	return core.Block{ID: rec.ID(), Requested: rec.requested, Bytes: rec.Bytes, Align: 1 << rec.align, Tag: rec.Tag, State: rec.State()}
}

// ID names the block as its owner does.
func (rec *Record) ID() core.BlockID {
	return core.BlockID{Ptr: rec.Ptr, Generation: rec.Generation(), AllocStream: rec.allocStream, Ordinal: int(rec.ordinal)}
}

// Generation is the block's, and that of a tombstone; zero for a record of no
// block. It may be asked without the lock.
func (rec *Record) Generation() core.Generation {
	if word := rec.word.Load(); word != 0 {
		return core.Generation(word >> blocktable.StateBits)
	}
	return rec.tombstoneOf
}

// Stream is the stream of the allocation.
func (rec *Record) Stream() core.StreamID { return rec.allocStream }

// State is the block's state. It may be asked without the lock.
func (rec *Record) State() core.BlockState {
	if word := rec.word.Load(); word != 0 {
		return core.BlockState(word&stateMask) + core.Live
	}
	return core.Freed
}

// SetState moves the block on; the lock must be held.
func (rec *Record) SetState(s core.BlockState) {
	rec.word.Store(wordOf(rec.Generation(), s) | locked)
}

// Retire takes the block of generation g from Live to Retired, under the lock or
// not, and reports whether this caller did.
func (rec *Record) Retire(g core.Generation) bool { return rec.move(g, core.Live, core.Retired) }

// move takes the block of generation g from one state to another and leaves the lock as
// it is. It reports false if the block is in another state.
func (rec *Record) move(g core.Generation, from, to core.BlockState) bool {
	for was := wordOf(g, from); !rec.word.CompareAndSwap(was, wordOf(g, to)|was&locked); {
		if was = rec.word.Load(); was&^locked != wordOf(g, from) {
			return false
		}
	}
	return true
}

// IsLive reports whether the record is that of the live block of generation g;
// it may be asked without the lock.
func (rec *Record) IsLive(g core.Generation) bool {
	return rec.word.Load()&^locked == wordOf(g, core.Live)
}

// Peek reports whether the record is of generation g, and whether that is live,
// of one instant and without the lock.
func (rec *Record) Peek(g core.Generation) (known, live bool) {
	word := rec.word.Load()
	return word>>blocktable.StateBits == uint64(g), word&^locked == wordOf(g, core.Live)
}

// Revive makes the block of generation g live again if it is retired, and not
// released; the lock must be held.
func (rec *Record) Revive(g core.Generation) {
	if rec.move(g, core.Retired, core.Live) && rec.extra != nil {
		rec.extra.freed, rec.extra.freeStack, rec.extra.freeSpan = 0, nil, core.SpanContext{}
	}
}

// SetFreed keeps the stack of the free, the span in force then and the time; the lock must
// be held.
func (rec *Record) SetFreed(stack core.Stack, in core.SpanContext) {
	more := rec.more()
	more.freed, more.freeStack, more.freeSpan = monotime.Now(), stack, in
}

// SetAllocated keeps the stack of the allocation and the span in force then; the lock
// must be held.
func (rec *Record) SetAllocated(stack core.Stack, in core.SpanContext) {
	more := rec.more()
	more.allocStack, more.allocSpan = stack, in
}

// becomeTombstone makes rec, which is of no block, the tombstone of another record,
// which was of generation g and is not written by others.
func (rec *Record) becomeTombstone(other *Record, g core.Generation) {
	rec.born = other.born
	rec.Ptr, rec.requested, rec.Bytes = other.Ptr, other.requested, other.Bytes
	rec.allocStream, rec.Tag, rec.extra = other.allocStream, other.Tag, other.extra
	rec.writer, rec.used = other.writer, other.used
	copy(rec.uses[:], other.uses[:min(other.used, usesKept)])
	rec.align, rec.readUnwritten, rec.ordinal = other.align, other.readUnwritten, other.ordinal
	rec.tombstoneOf = g
}

// Contains reports whether an address lies in the block; the lock must be held.
func (rec *Record) Contains(ptr uint64) bool { return ptr-rec.Ptr < rec.Bytes }

// more returns the side of rec for what few blocks have; the lock must be held.
func (rec *Record) more() *extra {
	if rec.extra == nil {
		rec.extra = &extra{}
	}
	return rec.extra
}

// Stacks are those of the allocation and of the free, as far as they were
// kept; the lock must be held.
func (rec *Record) Stacks() (allocated, freed core.Stack) {
	if rec.extra == nil {
		return nil, nil
	}
	return rec.extra.allocStack, rec.extra.freeStack
}

// Times are when the block was allocated and when its owner freed it; the second is zero
// if it was not freed or no stacks were kept. The lock must be held.
func (rec *Record) Times() (allocated, freed time.Time) {
	if rec.extra != nil && rec.extra.freed != 0 {
		freed = rec.extra.freed.Time()
	}
	return rec.born.Time(), freed
}

// Origin is where a finding about the block is told that no launch is known to
// have caused: in the trace of its free, or else of its allocation; the lock must be
// held.
func (rec *Record) Origin() core.SpanContext {
	switch {
	case rec.extra == nil:
		return core.SpanContext{}
	case !rec.extra.freeSpan.IsZero():
		return rec.extra.freeSpan
	}
	return rec.extra.allocSpan
}

// ReadsUnwritten reports whether an access reads what was never written, which was
// not reported yet; the lock must be held.
func (rec *Record) ReadsUnwritten(a core.Access) bool {
	return a == core.Read && rec.writer == 0 && !rec.readUnwritten
}

// Unwritten reports whether no launch is known to have written the block; the lock
// must be held.
func (rec *Record) Unwritten() bool { return rec.writer == 0 }

// NoteReadUnwritten notes that such a read was reported; the lock must be held.
func (rec *Record) NoteReadUnwritten() { rec.readUnwritten = true }
