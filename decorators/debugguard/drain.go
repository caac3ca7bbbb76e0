package debugguard

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
)

// ReapPending does the guard's upkeep once: it reads the verdicts that are there, and
// lets go what has been in quarantine for too long. Then it asks the upstream. It does
// not block on the device, except over an upstream without use tracking.
func (r *Resource) ReapPending(ctx context.Context) error {
	if r.gate.Load() != 0 || r.hasUpkeep() {
		_, _ = r.keepHouse(ctx) // what could not be freed stays for later
	}
	return r.upstream.ReapPending(ctx)
}

// Flush empties the quarantine and gives up the canaries: every block's last comparison and its free
// are queued. It does not wait for the device, except over an upstream
// without use tracking. The error joins the frees that failed; their blocks
// stay in quarantine and are tried again. If another call lets blocks go and makes no step for half
// a second, Flush goes on beside it. The error says so if that call still has its blocks.
func (r *Resource) Flush(ctx context.Context) error {
	mine := r.evicting.await(ctx)
	defer func() { r.evicting.giveBack(mine) }()
	err := r.letAllGo(ctx)
	if mine {
		return err
	}
	if mine = r.evicting.take(); !mine {
		return errors.Join(err, errBeside)
	}
	return errors.Join(err, r.letAllGo(ctx)) // what the other call could not free
}

// errBeside is that of a Flush which another call has kept waiting.
var errBeside = errors.New("debugguard: another call has blocks of the quarantine, and makes no progress in freeing them: " +
	"code of the program that it calls (a layer, sink, span processor or listener) has not returned, or waits for this call")

func (r *Resource) letAllGo(ctx context.Context) error {
	_, err := r.evict(ctx, &r.quarantine.queue, r.quarantine.queue.dequeue(math.MaxUint64), never)
	_, failed := r.giveUpCanaries(ctx, math.MaxUint64, never)
	return errors.Join(err, failed)
}

// Drain empties the quarantine as [Resource.Flush] does, waits for every verdict, and drains the
// upstream. Findings of everything freed before it are reported when it
// returns nil.
func (r *Resource) Drain(ctx context.Context) error {
	flushed := r.Flush(ctx) // also with the guard off: what was refused then is here still
	if err := r.await(ctx); err != nil {
		return errors.Join(flushed, err)
	}
	return errors.Join(flushed, r.upstream.Drain(ctx))
}

// launchLive is the name of the comparisons of live blocks.
const launchLive = "gpumem.guard.live"

// CheckLive queues the comparison of the red zones of every guarded block that
// its owner has not freed, or whose free an open intent keeps back, and has the
// layers below do theirs; see [core.Resource]. Without it, what happened to a block
// that is never freed would never be told. The modes without red zones compare
// nothing.
func (r *Resource) CheckLive(ctx context.Context) error {
	if r.cfg.Device == nil || r.Mode() < Sample {
		return r.upstream.CheckLive(ctx)
	}
	for stream, blocks := range r.liveBlocks() {
		for some := range slices.Chunk(blocks, maxBatch) {
			if err := r.checkSome(ctx, stream, some); err != nil {
				return err
			}
		}
	}
	return r.upstream.CheckLive(ctx)
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
	b := newBatch(stream)
	for _, rec := range blocks {
		b.redZones(rec)
	}
	return r.compareBatch(ctx, launchLive, b)
}
