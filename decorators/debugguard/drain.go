package debugguard

import (
	"context"
	"errors"
	"math"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
)

// verdictsPerCall is how many verdicts an operation reads in passing.
const verdictsPerCall = 4

// housekeep is the guard's upkeep, done in passing by operations that are not
// on the launch path.
func (r *Resource) housekeep(ctx context.Context) {
	if r.checks.awaited() != 0 {
		r.poll(verdictsPerCall)
	}
	if r.quarantine.memory.blocks.Load() != 0 && r.Mode() < Sample {
		r.enforce(ctx, 0) // what was freed while the mode changed
	}
}

// ReapPending reads the verdicts that are there, lets go what has been in
// quarantine for too long, and asks the upstream. It does not block on the
// device, except over an upstream without use tracking.
func (r *Resource) ReapPending(ctx context.Context) error {
	if r.gate.Load() != 0 {
		r.poll(math.MaxInt)
		r.enforce(ctx, 0)
	}
	return r.upstream.ReapPending(ctx)
}

// Flush empties the quarantine and gives up the canaries: every block's last comparison and its free
// are queued. It does not wait for the device, except over an upstream
// without use tracking. The error joins the frees that failed; their blocks
// stay in quarantine and are tried again.
func (r *Resource) Flush(ctx context.Context) error { return r.flush(ctx, nil) }

// flush is Flush until stop, if that is not nil, says so.
func (r *Resource) flush(ctx context.Context, stop func() bool) error {
	r.evicting.Lock()
	defer r.evicting.Unlock()
	_, kept, err := r.evictAll(ctx, r.quarantine.dequeue(math.MaxUint64), stop)
	r.quarantine.restore(kept)
	_, trimmed := r.trimCanariesUntil(ctx, 0, stop)
	return errors.Join(err, trimmed)
}

// Drain empties the quarantine, waits for every verdict, and drains the
// upstream. Findings of everything freed before it are reported when it
// returns nil.
func (r *Resource) Drain(ctx context.Context) error {
	if r.gate.Load() == 0 {
		return r.upstream.Drain(ctx)
	}
	flushed := r.Flush(ctx)
	if err := r.await(ctx); err != nil {
		return errors.Join(flushed, err)
	}
	return errors.Join(flushed, r.upstream.Drain(ctx))
}

// launchLive is the name of the comparisons of live blocks.
const launchLive = "gpumem.guard.live"

var _ core.LiveChecker = (*Resource)(nil)

// CheckLive queues the comparison of the red zones of every guarded block that
// its owner has not freed, or whose free an open intent keeps back; see
// [core.LiveChecker]. Without it, what happened to a block that is never freed
// would never be told. It does nothing in the modes that have no red zones.
func (r *Resource) CheckLive(ctx context.Context) error {
	if r.cfg.Device == nil || r.Mode() < Sample {
		return nil
	}
	for stream, blocks := range r.liveBlocks() {
		for len(blocks) > 0 {
			n := min(len(blocks), maxBatch)
			if err := r.checkSome(ctx, stream, blocks[:n]); err != nil {
				return err
			}
			blocks = blocks[n:]
		}
	}
	return nil
}

// liveBlocks are the guarded blocks that can be compared, by stream.
func (r *Resource) liveBlocks() map[core.StreamID][]*ledger.Record {
	live := map[core.StreamID][]*ledger.Record{}
	for _, rec := range r.ledger.All {
		if rec.Guard != nil && rec.Guard.Armed && rec.Watched() {
			live[rec.Stream()] = append(live[rec.Stream()], rec)
		}
	}
	return live
}

// checkSome compares blocks of one stream, each by itself if they cannot be
// compared together: one that a launch holds open must not hide the others.
func (r *Resource) checkSome(ctx context.Context, stream core.StreamID, blocks []*ledger.Record) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if r.checks.full() {
		if err := r.await(ctx); err != nil {
			return err
		}
	}
	err := r.checkTogether(ctx, stream, blocks)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, core.ErrSticky):
		return err
	case len(blocks) == 1:
		if blocks[0].Watched() { // or it was freed meanwhile
			r.count.unchecked.Add(1)
		}
		return nil
	}
	for i := range blocks {
		if err := r.checkSome(ctx, stream, blocks[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (r *Resource) checkTogether(ctx context.Context, stream core.StreamID, blocks []*ledger.Record) error {
	b, at := newBatch(stream), r.launches.tick()
	var uses []core.Use
	for _, rec := range blocks {
		b.redZones(rec, at)
		uses = append(uses, core.Use{Block: rec.Inner(), Access: core.Read})
	}
	err := r.device(ctx, work{name: launchLive, stream: stream, uses: uses,
		enqueue: func(ctx context.Context, stream core.StreamID) (bool, error) {
			b.stream = stream
			err := r.compare(ctx, b)
			return !core.WasNotEnqueued(err), err
		}})
	if err != nil {
		b.void.Store(true)
		return err
	}
	r.noteQueued(b, nil)
	return nil
}
