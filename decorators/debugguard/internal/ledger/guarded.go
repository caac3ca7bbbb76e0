package ledger

import (
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/canary"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// Guarded is what the guard knows of a block that it watches on the device. The lock of
// the block's [Record] guards Open and FreeBlocked; what does not change is set
// before the record is entered; the rest belongs to the goroutine that frees the
// block, which is one at a time.
type Guarded struct {
	// part is the guard's of the block's record, from EnterGuarded on.
	part *Part
	// Layout shifts the caller's pointer; it does not change. Armed is set once
	// the red zones are filled.
	Layout canary.Layout
	Armed  bool
	// Isolated is set if nothing is mapped at the block's addresses after the
	// free; it does not change.
	Isolated bool
	// Forwarded is set from the forwarding of the free until the release.
	Forwarded atomic.Bool
	// Open counts the intents open on the block; FreeBlocked is set if a free waits
	// for the last of them.
	Open        int
	FreeBlocked bool
	// Whole is set if all of the block is poisoned, and Checked once its last
	// comparison is queued and only the free is left to do.
	Whole, Checked bool
	// Unpoisoned is set if the block is in quarantine without poison, because it
	// could not be filled; PoisonedAt is the tick before it was.
	Unpoisoned bool
	PoisonedAt uint64
	// FreedAt is when the block entered quarantine, Clean the tick of the launch
	// log at the last comparison or at arming.
	FreedAt time.Time
	Clean   atomic.Uint64
	// CanaryOf is set for a block of the guard's own: whose its bytes were before.
	CanaryOf *core.Block
	// Filled counts the fillings of the red zones after the first. reported is one
	// more than at which of them damage was last reported, for each kind of damage:
	// what several comparisons saw is reported once. It belongs to the reader of
	// verdicts.
	Filled   atomic.Uint32
	reported map[core.FindingKind]uint32
}

// IsNews reports whether damage of a kind, seen after so many fillings, is news.
func (g *Guarded) IsNews(kind core.FindingKind, filled uint32) bool {
	if g.reported[kind] > filled {
		return false
	}
	if g.reported == nil {
		g.reported = map[core.FindingKind]uint32{}
	}
	g.reported[kind] = filled + 1
	return true
}

// NewGuarded returns the record of a guarded block, whose guard the caller
// fills in before anybody can find it. It is not pooled.
func (l *Ledger) NewGuarded(b core.Block, allocated core.Stack, in core.SpanContext) *Record {
	made := new(struct {
		record  Record
		guarded Guarded
	})
	rec := &made.record
	rec.Guard, rec.Stacked, rec.extra = &made.guarded, true, &extra{allocStack: allocated, allocSpan: in}
	rec.fill(&b, monotime.Now())
	return rec
}

// Inner names a guarded block to the upstream by its true beginning.
func (rec *Record) Inner() core.BlockID {
	id := rec.ID()
	id.Ptr = rec.Guard.Layout.Base
	return id
}

// Footprint is what a guarded block takes of the device below the guard.
func (rec *Record) Footprint() core.Amount {
	return core.Amount{Bytes: rec.Guard.Layout.Total(), Requested: rec.requested, Blocks: 1}
}

// Watched reports whether a guarded block is live, or its free is blocked by an intent.
func (rec *Record) Watched() bool {
	rec.LockGuarded()
	defer rec.Unlock()
	return rec.State() == core.Live || rec.Guard.FreeBlocked
}
