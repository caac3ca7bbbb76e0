package debugguard

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// seals are the blocks that are sealed. There are few, and programs that seal
// nothing pay one load of a counter.
type seals struct {
	count atomic.Int64
	mu    sync.Mutex
	all   map[core.Generation]*seal
	next  int // whose turn it is when bisecting
	// clears is how often all seals were ended.
	clears int
	// queueing is how many batches of checksums are being queued over an upstream that does not
	// fence them, queued counts those that were.
	queueing atomic.Int64
	queued   progress
}

// put makes a seal one that everybody can find. It is not set yet.
func (ss *seals) put(s *seal) {
	ss.change(func() { ss.all[s.block.ID.Generation], s.clears = s, ss.clears })
}

// complete sets a seal, and reports false if it was taken away.
func (ss *seals) complete(s *seal) bool {
	ss.change(func() { s.set = ss.all[s.block.ID.Generation] == s })
	return s.set
}

// restore takes a seal back whose block's free failed, nil for none. All may have been ended since.
func (ss *seals) restore(s *seal) {
	if s == nil {
		return
	}
	ss.change(func() {
		if s.set && s.clears == ss.clears {
			ss.all[s.block.ID.Generation] = s
		}
	})
}

// remove takes s away, and reports false if that was done before, or if it is nil.
func (ss *seals) remove(s *seal) (removed bool) {
	if s != nil {
		ss.change(func() { removed = ss.drop(s) })
	}
	return removed
}

// removeUnset is remove of a seal that is not set yet.
func (ss *seals) removeUnset(s *seal) (removed bool) {
	ss.change(func() { removed = !s.set && ss.drop(s) })
	return removed
}

// annul takes away s, which its caller is not told of.
func (ss *seals) annul(s *seal) {
	ss.change(func() { s.set = false; ss.drop(s) })
}

// clear ends all seals, uncompared.
func (ss *seals) clear() { ss.change(func() { clear(ss.all); ss.clears++ }) }

// change does f under the lock.
func (ss *seals) change(f func()) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.all == nil {
		ss.all = map[core.Generation]*seal{}
	}
	f()
	ss.count.Store(int64(len(ss.all)))
}

// drop is remove under the lock.
func (ss *seals) drop(s *seal) bool {
	there := ss.all[s.block.ID.Generation] == s
	if there {
		delete(ss.all, s.block.ID.Generation)
	}
	return there
}

// holds reports whether s has not ended.
func (ss *seals) holds(s *seal) bool { return ss.get(s.block.ID.Generation) == s }

// whileNoneEnds calls add with those of some that have ended.
func (ss *seals) whileNoneEnds(some []*seal, add func(ended []bool)) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ended := make([]bool, len(some))
	for i, s := range some {
		ended[i] = ss.all[s.block.ID.Generation] != s
	}
	add(ended)
}

// awaitQueued waits for the checksums that are being queued of seals that had not ended. Where uses
// are fenced, those announce that they read the block. Elsewhere its owner may free the block at
// once. Their device may make the call that waits: then it goes on.
func (ss *seals) awaitQueued(ctx context.Context) {
	ss.queued.await(ctx, func() bool { return ss.queueing.Load() == 0 })
}

// get is the seal of a generation, nil if there is none.
func (ss *seals) get(g core.Generation) *seal {
	if ss.count.Load() == 0 {
		return nil
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.all[g]
}

// list is all of them, oldest block first.
func (ss *seals) list() []*seal {
	if ss.count.Load() == 0 {
		return nil
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return slices.SortedFunc(maps.Values(ss.all), func(a, b *seal) int {
		return cmp.Compare(a.block.ID.Generation, b.block.ID.Generation)
	})
}

// nextInTurn is the next of them in turn that make up about so many bytes.
func (ss *seals) nextInTurn(most int, bytes uint64, wanted func(*seal) bool) (some []*seal) {
	all := ss.list()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return inTurn(all, &ss.next, most, bytes, func(s *seal) (uint64, bool) { return s.block.Bytes, wanted(s) })
}

// sealedUses finds the writes to sealed blocks that a launch declares. The
// error is that of the first, if they are to be refused.
func (r *Resource) sealedUses(ctx context.Context, req *core.UseRequest) error {
	if r.seals.count.Load() == 0 || r.Mode() == Off {
		return nil
	}
	for _, u := range req.Uses {
		if !u.Access.Writes() {
			continue
		}
		s := r.seals.get(u.Block.Generation)
		if s == nil || r.seals.removeUnset(s) { // Seal refuses then
			continue
		}
		if err := r.sealedWrite(s, req); r.cfg.Advanced.Refuse {
			return err
		}
		// The bytes are about to change with notice: there is nothing
		// left to keep, and what they were before is compared now.
		_ = r.breakSeal(ctx, s)
	}
	return nil
}

// sealedWrite reports a declared write to a sealed block.
func (r *Resource) sealedWrite(s *seal, req *core.UseRequest) error {
	err := &core.StreamMisuseError{Op: "PrepareUse", Block: s.block.ID, Stream: req.Stream,
		Reason: "the block was declared read-only (Seal): Unseal it before a launch that writes it"}
	f := r.sealFinding(s)
	f.Origin = core.SpanContext{}
	f.Suspects = []core.UseRecord{{Launch: req.Launch, Stream: req.Stream, Access: core.Write, Caller: r.untold(req.Span), Time: monotime.Now().Time()}}
	return r.accuse(f, err, "launch %q declared to write generation %s tagged %q, which was declared read-only", req.Launch, s.block.ID.Generation, s.block.Tag)
}

// bisectSeals compares sealed blocks behind a launch, in turn.
func (r *Resource) bisectSeals(ctx context.Context, stream core.StreamID) {
	if r.seals.count.Load() == 0 || r.checks.busy() {
		return
	}
	some := r.seals.nextInTurn(bisectBlocks, bisectBytes, func(s *seal) bool { return r.orderedBlock(s.inner, stream) })
	if len(some) > 0 {
		_ = r.sumUp(ctx, launchBisect, stream, false, some...) // one that fails is made up for by the next
	}
}
