package debugguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
)

// maxBatch is how many blocks one comparison covers at most.
const maxBatch = 64

// quarantineBlock puts a freed block into quarantine, and returns it as its owner knew
// it. What comes just as the device guard is turned off, the upkeep lets go.
func (r *Resource) quarantineBlock(rec *ledger.Record) core.Block {
	rec.LockGuarded()
	rec.SetState(core.Quarantined)
	rec.Guard.FreedAt = r.cfg.Advanced.Now()
	b := rec.Block()
	rec.Unlock()
	r.upstream.Withhold(rec.Inner(), core.Quarantined)
	r.quarantine.queue.push(rec)
	r.upkeep.wake()
	return b
}

// quarantineLimit is what quarantine may hold in bytes now.
func (r *Resource) quarantineLimit() uint64 {
	switch r.Mode() {
	case Sample:
		return r.quarantine.sampled.Load()
	case Hunt:
		return r.cfg.Advanced.Hunt.QuarantineBytes
	default:
		return 0
	}
}

// followPeak raises the limit of a quarantine of the default size to its share of the most
// that callers have had, if so many bytes more need it. That peak never falls, so it is looked
// at only where the limit does not do.
func (r *Resource) followPeak(incoming uint64) {
	limit := r.quarantine.sampled.Load()
	if limit == r.cfg.QuarantineBytes || r.quarantine.queue.size().Bytes+incoming <= limit {
		return
	}
	raise(&r.quarantine.sampled, min(r.cfg.QuarantineBytes, r.upstream.Stats().PeakBytes/quarantineShare))
}

// enforceLimit lets go what is over the limit once so many bytes come in. A goroutine
// that is evicting already does it for all. What fails stays, for later.
func (r *Resource) enforceLimit(ctx context.Context, incoming uint64) {
	if r.quarantine.queue.size().Blocks+r.canaries.queue.size().Blocks == 0 || !r.evicting.try() {
		return
	}
	defer r.evicting.giveBack(true)
	_ = r.shrink(ctx, incoming, never)
}

// shrink lets go what is over the limit once so many bytes come in, until stop says so:
// everything if the device guard is off, and the canaries unless there is a hunt.
func (r *Resource) shrink(ctx context.Context, incoming uint64, stop func() bool) (err error) {
	if r.Mode() != Hunt {
		_, err = r.giveUpCanaries(ctx, math.MaxUint64, stop)
	}
	for excess := r.excess(incoming); excess > 0; excess = r.excess(incoming) {
		blocks := r.quarantine.queue.dequeue(excess)
		freed, failed := r.evict(ctx, &r.quarantine.queue, blocks, stop)
		if failed = errors.Join(failed, r.postSome(ctx, blocks)); freed == 0 || failed != nil {
			return errors.Join(err, failed)
		}
	}
	return err
}

// makeRoom keeps quarantine within its limit with so many bytes more, and reports
// whether they may come in: up to twice the
// limit while another goroutine evicts or the device is far behind, and nothing
// while a request waits for what quarantine gave up. A block without room is
// compared, and its free is forwarded. Nothing waits here, because the end of a
// launch may come this way; concurrent frees may each bring one block more.
func (r *Resource) makeRoom(ctx context.Context, bytes uint64) bool {
	r.followPeak(bytes)
	limit := r.quarantineLimit()
	if bytes > limit || r.path.Room().Waiting() > 0 {
		return false
	}
	r.enforceLimit(ctx, bytes)
	return less(r.quarantine.queue.size().Bytes, limit) <= limit-bytes
}

// verdictsForRoom is how many verdicts a free reads where so many are awaited that no
// comparison can be queued.
const verdictsForRoom = 64

// excess is how many bytes must leave quarantine for so many that come in. While the
// device is so far behind that they would go unchecked, the limit is twice as high.
func (r *Resource) excess(incoming uint64) uint64 {
	limit := less(r.quarantineLimit(), r.canaries.queue.size().Bytes)
	if r.checks.full() {
		if r.poll(verdictsForRoom); r.checks.full() {
			limit *= 2
		}
	}
	return r.quarantine.queue.excess(limit, incoming)
}

// evict lets blocks go that were taken from a queue, and puts those back whose free
// failed, or that were left when stop said so. Their order in blocks is lost.
func (r *Resource) evict(ctx context.Context, q *queue, blocks []*ledger.Record, stop func() bool) (freed uint64, err error) {
	returned := false
	defer func() {
		if !returned { // code of the user's panics that a layer below calls, or that is told of a finding
			q.restore(slices.DeleteFunc(blocks, r.gone))
		}
	}()
	freed, left, err := r.releaseQuarantined(ctx, blocks, stop)
	returned = true
	q.restore(left)
	return freed, err
}

// gone reports whether the upstream has freed a block, or is about to.
func (r *Resource) gone(rec *ledger.Record) bool {
	s := r.upstream.State(rec.Inner())
	return s == core.Retired || s == core.Freed
}

// errStopped is that of a change of the mode which Close has stopped.
var errStopped = fmt.Errorf("debugguard: stopped letting blocks go: the guard is %w", core.ErrClosed)

// releaseQuarantined queues the last comparison of blocks, in batches of one stream, and behind it
// their free. It returns those that are left: whose free failed, and all behind where
// stop said so.
func (r *Resource) releaseQuarantined(ctx context.Context, blocks []*ledger.Record, stop func() bool) (freed uint64, left []*ledger.Record, err error) {
	slices.SortStableFunc(blocks, func(a, b *ledger.Record) int { return cmp.Compare(a.Stream(), b.Stream()) })
	compared := 0
	for i, rec := range blocks {
		if stop() {
			return freed, append(left, blocks[i:]...), errors.Join(err, errStopped)
		}
		if i == compared {
			compared += r.compareLast(ctx, blocks[i:])
		}
		if failure := r.forwardEvicted(ctx, rec); failure != nil {
			left, err = append(left, rec), errors.Join(err, failure)
			continue
		}
		freed += rec.Footprint().Bytes
		r.evicting.step()
	}
	return freed, left, err
}

// never lets a loop go on to its end.
func never() bool { return false }

// compareLast queues the comparison of poison and red zones of the first blocks that
// are of one stream, and of some canaries, and returns how many blocks those are. It is
// tried once for each block.
func (r *Resource) compareLast(ctx context.Context, blocks []*ledger.Record) (n int) {
	b := newBatch(blocks[0].Stream())
	for n < min(len(blocks), maxBatch) && blocks[n].Stream() == b.check.stream {
		if g := blocks[n].Guard; !g.Checked {
			g.Checked = true
			b.poisoned(blocks[n])
		}
		n++
	}
	if b.check.blocks > 0 {
		same := func(rec *ledger.Record) bool { return rec.Stream() == blocks[0].Stream() }
		for _, rec := range r.canaries.queue.nextInTurn(canariesAtOnce, math.MaxUint64, same) {
			b.poisoned(rec)
		}
	}
	if b.check.blocks > 0 && (r.checks.full() || r.compareBatch(ctx, launchVerify, b) != nil) {
		r.count.unchecked.Add(uint64(b.check.blocks))
	}
	return n
}

// forwardEvicted frees a block at the upstream. One that was freed around the
// guard leaves quarantine too.
func (r *Resource) forwardEvicted(ctx context.Context, rec *ledger.Record) error {
	returned := false
	defer func() {
		if !returned && r.gone(rec) { // a sink panics behind the free
			r.leave(rec)
		}
	}()
	_, err := r.forwardFree(ctx, rec)
	if returned = true; err != nil && !errors.Is(err, core.ErrUseAfterFree) {
		r.count.retried.Add(1)
		return err
	}
	if err != nil && rec.Guard.CanaryOf == nil {
		r.ledger.Close(rec, rec.ID())
	}
	r.leave(rec)
	return nil
}

// leave notes that a block has left quarantine.
func (r *Resource) leave(rec *ledger.Record) {
	if rec.Guard.CanaryOf != nil {
		r.canaries.gone(rec)
		return
	}
	rec.LockGuarded()
	if rec.State() == core.Quarantined { // not released within the call
		rec.SetState(core.Retired)
	}
	rec.Unlock()
	r.quarantine.endStay(rec, r.cfg.Advanced.Now())
	r.count.evicted.Add(1)
}

// forwardedFrees are what goes by the frees that the upstream has not released yet.
type forwardedFrees struct {
	// isolation is the bytes that isolated blocks take beyond what callers have
	// live of them: what fills their units up, and all of those that were freed
	// and are not unmapped.
	isolation atomic.Int64
}

// forwardFree frees a guarded block at the upstream.
func (r *Resource) forwardFree(ctx context.Context, rec *ledger.Record) (b core.Block, err error) {
	rec.Guard.Forwarded.Store(true)
	if rec.Guard.Isolated {
		r.forwarded.isolation.Add(int64(rec.Bytes))
	}
	returned := false
	defer func() {
		if (err != nil || !returned && !r.gone(rec)) && rec.Guard.Forwarded.CompareAndSwap(true, false) {
			if rec.Guard.Isolated {
				r.forwarded.isolation.Add(-int64(rec.Bytes))
			}
		}
	}()
	b, err = r.upstream.Deallocate(ctx, rec.Inner())
	returned = true
	return b, err
}

// noteReleased notes that the upstream has released a guarded block.
func (r *Resource) noteReleased(rec *ledger.Record) {
	spare := rec.Guard.Layout.Total() - rec.Bytes
	if rec.Guard.Forwarded.CompareAndSwap(true, false) {
		spare += rec.Bytes
	}
	if rec.Guard.Isolated {
		r.forwarded.isolation.Add(-int64(spare))
	}
}
