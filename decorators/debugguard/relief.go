package debugguard

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// outOfMemory reports whether err is a want of memory, which giving some back may
// cure.
func outOfMemory(err error) bool {
	return errors.Is(err, core.ErrOutOfBudget) || errors.Is(err, core.ErrOutOfMemory)
}

// allocate asks the upstream, and gives up quarantine, oldest first and in
// steps, as long as that is what it takes. The frees are queued, not waited
// for: an upstream may reuse their bytes in stream order.
func (r *Resource) allocate(ctx context.Context, req *core.Request) (core.Block, error) {
	evicted := r.count.evicted.Load()
	b, err := r.upstream.Allocate(ctx, *req)
	if err == nil || !outOfMemory(err) {
		return b, err
	}
	return r.relieve(ctx, *req, evicted, err)
}

func (r *Resource) relieve(ctx context.Context, req core.Request, evicted uint64, first error) (b core.Block, err error) {
	began := r.cfg.Now()
	err = first
	for outOfMemory(err) && r.giveUp(ctx, req.Bytes, evicted) {
		r.hide(err)
		evicted = r.count.evicted.Load()
		b, err = r.upstream.Allocate(ctx, req)
	}
	if err == nil {
		r.relieved(req, began, first)
	}
	return b, err
}

// giveUp evicts a step: the bytes that are needed, or a quarter of quarantine
// if that is more. It reports whether anything was freed, by this call or by
// others since the number of evictions was read.
func (r *Resource) giveUp(ctx context.Context, bytes, evicted uint64) bool {
	r.evicting.Lock()
	if r.count.evicted.Load() == evicted {
		_, _ = r.evict(ctx, max(bytes, r.quarantine.size().Bytes/4)) // what fails stays, for later
	}
	r.evicting.Unlock()
	if r.count.evicted.Load() == evicted {
		return false
	}
	_ = r.upstream.ReapPending(ctx) // what fails here, the next attempt tells
	return true
}

// hide keeps an error that the caller is not told out of the statistics.
func (r *Resource) hide(err error) {
	if errors.Is(err, core.ErrOutOfBudget) {
		r.count.hiddenRefusals.Add(1)
		return
	}
	r.count.hiddenFailures.Add(1)
}

// relieved counts and reports a refusal that was cured.
func (r *Resource) relieved(req core.Request, began time.Time, refusal error) {
	r.count.relieved.Add(1)
	if r.cfg.Events == nil {
		return
	}
	r.cfg.Events.Emit(core.Event{
		Op: core.OpRefusal, Layer: "debugguard", Time: began, Duration: r.cfg.Now().Sub(began),
		Ordinal: r.Ordinal(), Stream: req.Stream, Tag: req.Tag.OrUntagged(),
		Block:     core.BlockID{AllocStream: req.Stream, Ordinal: r.Ordinal()},
		Requested: req.Requested, Bytes: req.Bytes, Relieved: true, Err: refusal,
	})
}
