package debugguard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
)

// maxBatch is how many blocks one comparison covers at most.
const maxBatch = 64

// quarantineBlock puts a freed block into quarantine and returns it as its owner
// knew it.
func (r *Resource) quarantineBlock(ctx context.Context, rec *ledger.Record) core.Block {
	rec.Mu.Lock()
	rec.SetState(core.Quarantined)
	rec.Guard.FreedAt = r.cfg.Now()
	b := rec.Block()
	rec.Mu.Unlock()
	r.below.Withhold(rec.Inner(), core.Quarantined)
	r.enforce(ctx, rec.Footprint().Bytes)
	r.quarantine.push(rec)
	r.wake()
	if r.quarantineLimit() == 0 { // turned off meanwhile
		r.enforce(ctx, 0)
	}
	return b
}

// quarantineLimit is what quarantine may hold in bytes now.
func (r *Resource) quarantineLimit() uint64 {
	switch r.Mode() {
	case Sample:
		return r.cfg.QuarantineBytes
	case Hunt:
		return r.cfg.Hunt.QuarantineBytes
	default:
		return 0
	}
}

// enforce evicts what is over the limits once so many bytes come in, and
// everything if the device guard is off. Whoever is evicting already does it
// for all.
func (r *Resource) enforce(ctx context.Context, incoming uint64) {
	if r.quarantine.size().Blocks+r.canaries.memory.amount().Blocks == 0 || !r.evicting.TryLock() {
		return
	}
	defer r.evicting.Unlock()
	if r.Mode() != Hunt {
		_, _ = r.trimCanaries(ctx, 0) // what fails stays, for later
	}
	for {
		limit := r.quarantineLimit()
		limit -= min(limit, r.canaries.memory.amount().Bytes)
		excess := r.excess(limit, incoming)
		if excess == 0 {
			return
		}
		if freed, err := r.evict(ctx, excess, r.Mode() == Hunt); freed == 0 || err != nil {
			return
		}
	}
}

// hasRoom reports whether quarantine may take so many bytes more: up to twice its
// limit while another goroutine evicts or the device is far behind, and nothing
// while a request waits for what quarantine gave up. A block without room is
// compared, and its free is forwarded. Nothing waits here, because the end of a
// launch may come this way; concurrent frees may each bring one block more.
func (r *Resource) hasRoom(ctx context.Context, bytes uint64) bool {
	limit := r.quarantineLimit()
	if bytes > limit || r.forwarded.waiting.Load() > 0 {
		return false
	}
	crowded := func() bool {
		now := r.quarantine.size().Bytes
		return now > limit && now-limit > limit-bytes
	}
	if !crowded() {
		return true
	}
	r.enforce(ctx, bytes)
	return !crowded()
}

// excess is how many bytes must leave quarantine. While the device is so far
// behind that they would go unchecked, that is what is beyond twice the limit.
func (r *Resource) excess(limit, incoming uint64) uint64 {
	if r.checks.full() {
		if r.poll(verdictsPerCall); r.checks.full() {
			return r.quarantine.excess(2*limit, incoming, time.Time{}, 0)
		}
	}
	return r.quarantine.excess(limit, incoming, r.cfg.Now().Add(-r.cfg.QuarantineAge), r.cfg.QuarantineAge/8)
}

// evict lets the oldest blocks go until they make up want bytes, and posts
// canaries in their place if it is asked to. evicting must be held.
func (r *Resource) evict(ctx context.Context, want uint64, post bool) (freed uint64, err error) {
	return r.evictBlocks(ctx, r.quarantine.dequeue(want), post)
}

// evictBlocks lets blocks go that were taken from quarantine. evicting must be
// held.
func (r *Resource) evictBlocks(ctx context.Context, blocks []*ledger.Record, post bool) (freed uint64, err error) {
	freed, kept, err := r.evictAll(ctx, blocks, nil)
	r.quarantine.restore(kept)
	if !post {
		return freed, err
	}
	return freed, errors.Join(err, r.postSome(ctx, slices.DeleteFunc(blocks, func(rec *ledger.Record) bool { return slices.Contains(kept, rec) })))
}

// evictAll queues the last comparison of blocks, in batches of one stream, and
// behind it their free. It returns those whose free failed, and those that were
// left when stop, if it is not nil, said so. Their order in blocks is lost.
func (r *Resource) evictAll(ctx context.Context, blocks []*ledger.Record, stop func() bool) (freed uint64, kept []*ledger.Record, err error) {
	slices.SortStableFunc(blocks, func(a, b *ledger.Record) int { return cmp.Compare(a.Stream(), b.Stream()) })
	for len(blocks) > 0 {
		if stop != nil && stop() {
			kept = append(kept, blocks...)
			break
		}
		n := 1
		for n < len(blocks) && n < maxBatch && blocks[n].Stream() == blocks[0].Stream() {
			n++
		}
		r.compareLast(ctx, blocks[:n])
		for _, rec := range blocks[:n] {
			if stop != nil && stop() { // told of at the end
				kept = append(kept, rec)
				continue
			}
			if failure := r.release(ctx, rec); failure != nil {
				kept, err = append(kept, rec), errors.Join(err, failure)
				continue
			}
			freed += rec.Footprint().Bytes
		}
		blocks = blocks[n:]
	}
	if stop != nil && stop() {
		err = errors.Join(err, r.refuseClosed("Flush"))
	}
	return freed, kept, err
}

// compareLast queues the comparison of poison and red zones of blocks of one
// stream. It is tried once for each block.
func (r *Resource) compareLast(ctx context.Context, blocks []*ledger.Record) {
	var uses []core.Use
	b := newBatch(blocks[0].Stream())
	at := r.launches.tick()
	for _, rec := range blocks {
		if !rec.Guard.Checked {
			rec.Guard.Checked = true
			b.poisoned(rec, at)
			uses = append(uses, core.Use{Block: rec.Inner(), Access: core.Read})
		}
	}
	if b.blocks > 0 {
		uses = r.watchCanaries(b, uses, canariesAtOnce, func(rec *ledger.Record) bool { return rec.Stream() == b.stream })
	}
	if b.blocks == 0 {
		return
	}
	if r.checks.full() {
		r.count.unchecked.Add(uint64(b.blocks))
		return
	}
	err := r.device(ctx, work{name: launchVerify, stream: b.stream, uses: uses,
		enqueue: func(ctx context.Context, stream core.StreamID) (bool, error) {
			b.stream = stream
			err := r.compare(ctx, b)
			return !core.WasNotEnqueued(err), err
		}})
	r.noteQueued(b, err)
}

// release frees a block at the upstream. One that somebody freed around the
// guard is let go too.
func (r *Resource) release(ctx context.Context, rec *ledger.Record) error {
	_, err := r.forwardFree(ctx, rec)
	if err != nil && !errors.Is(err, core.ErrUseAfterFree) {
		r.count.retried.Add(1)
		return err
	}
	if rec.Guard.CanaryOf != nil {
		r.canaryGone(rec)
		return nil
	}
	if err != nil {
		r.ledger.Close(rec, rec.Generation())
	}
	rec.Mu.Lock()
	if rec.State() == core.Quarantined { // not released within the call
		rec.SetState(core.Retired)
	}
	rec.Mu.Unlock()
	r.quarantine.left(rec, r.cfg.Now())
	r.count.evicted.Add(1)
	return nil
}
