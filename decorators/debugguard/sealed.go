package debugguard

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// seals are the blocks that are sealed. There are few, and programs that seal
// nothing pay one load of a counter.
type seals struct {
	count atomic.Int64
	mu    sync.Mutex
	all   map[core.Generation]*seal
	next  int // whose turn it is when bisecting
	// endLock is held while seals end, and read-held while checksums are queued
	// of those that have not ended.
	endLock sync.RWMutex
}

func (ss *seals) put(s *seal) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.enter(s)
}

// enter is put under the lock.
func (ss *seals) enter(s *seal) {
	if ss.all == nil {
		ss.all = map[core.Generation]*seal{}
	}
	ss.all[s.block.ID.Generation] = s
	ss.count.Store(int64(len(ss.all)))
}

// complete sets a seal, and reports false if somebody took it away.
func (ss *seals) complete(s *seal) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s.set = ss.all[s.block.ID.Generation] == s
	return s.set
}

// restore takes a seal back whose block's free failed, nil for none.
func (ss *seals) restore(s *seal) {
	if s == nil {
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if s.set {
		ss.enter(s)
	}
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

// holds reports whether s has not ended.
func (ss *seals) holds(s *seal) bool { return ss.get(s.block.ID.Generation) == s }

// remove takes s away, and reports false if somebody else has.
func (ss *seals) remove(s *seal) bool {
	ss.endLock.Lock()
	defer ss.endLock.Unlock()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.drop(s)
}

// removeUnset is remove of a seal that is not set yet.
func (ss *seals) removeUnset(s *seal) bool {
	ss.endLock.Lock()
	defer ss.endLock.Unlock()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return !s.set && ss.drop(s)
}

// annul takes away s, which its caller is not told of.
func (ss *seals) annul(s *seal) {
	ss.endLock.Lock()
	defer ss.endLock.Unlock()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s.set = false
	ss.drop(s)
}

// drop is remove under the locks.
func (ss *seals) drop(s *seal) bool {
	g := s.block.ID.Generation
	if ss.all[g] != s {
		return false
	}
	delete(ss.all, g)
	ss.count.Store(int64(len(ss.all)))
	return true
}

// forget ends the seal of a generation, compared or not.
func (ss *seals) forget(g core.Generation) {
	if s := ss.get(g); s != nil {
		ss.remove(s)
	}
}

// clear ends all seals, uncompared.
func (ss *seals) clear() {
	ss.endLock.Lock()
	defer ss.endLock.Unlock()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	clear(ss.all)
	ss.count.Store(0)
}

// list is all of them, oldest block first.
func (ss *seals) list() []*seal {
	if ss.count.Load() == 0 {
		return nil
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	var all []*seal
	for _, s := range ss.all {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *seal) int { return int(a.block.ID.Generation) - int(b.block.ID.Generation) })
	return all
}

// nextInTurn is the next of them in turn that make up about so many bytes.
func (ss *seals) nextInTurn(most int, bytes uint64, wanted func(*seal) bool) (some []*seal) {
	all := ss.list()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	sum := uint64(0)
	for range all {
		if len(some) == most || sum >= bytes {
			break
		}
		s := all[ss.next%len(all)]
		ss.next++
		if wanted(s) {
			some, sum = append(some, s), sum+s.block.Bytes
		}
	}
	return some
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
		if err := r.sealedWrite(s, req); r.cfg.Refuse {
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
	f.Err, f.Origin = err, core.SpanContext{}
	f.Suspects = []core.UseRecord{{Launch: req.Launch, Stream: req.Stream, Access: core.Write, Caller: r.untold(req.Span), Time: r.cfg.Now()}}
	f.Text = fmt.Sprintf("launch %q declared to write generation %s tagged %q, which was declared read-only, at %s", req.Launch, s.block.ID.Generation, s.block.Tag, caller())
	r.report(f)
	return err
}

// bisectSeals compares sealed blocks behind a launch, in turn.
func (r *Resource) bisectSeals(ctx context.Context, stream core.StreamID) {
	if r.seals.count.Load() == 0 || r.checks.busy() {
		return
	}
	some := r.seals.nextInTurn(bisectBlocks, bisectBytes, func(s *seal) bool { return r.orderedBlock(s.inner, stream) })
	if len(some) == 0 {
		return
	}
	_ = r.sumUp(ctx, launchBisect, &summing{seals: some, stream: stream}) // one that fails is made up for by the next
}
