package debugguard

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
)

// forwardedFrees are the frees of guarded blocks that the guard has forwarded to
// the upstream and that this has not released yet: their memory becomes free when
// the device has completed them.
type forwardedFrees struct {
	memory tally
	// released counts the blocks that the upstream has released. A caller that
	// waited for one in vain stores the number plus one in vain: until the number
	// changes nobody else waits.
	released, vain atomic.Uint64
	// waiting counts the callers that wait. Meanwhile nothing is quarantined or
	// isolated: that would take what is released.
	waiting atomic.Int64
	// isolation is the bytes that isolated blocks take beyond what callers have
	// live of them: what fills their units up, and all of those that were freed
	// and are not unmapped.
	isolation atomic.Int64
}

// forwardFree frees a guarded block at the upstream.
func (r *Resource) forwardFree(ctx context.Context, rec *ledger.Record) (core.Block, error) {
	rec.Guard.Forwarded.Store(true)
	r.forwarded.memory.add(rec.Footprint())
	if rec.Guard.Isolated {
		r.forwarded.isolation.Add(int64(rec.Bytes))
	}
	b, err := r.upstream.Deallocate(ctx, rec.Inner())
	if err != nil && rec.Guard.Forwarded.CompareAndSwap(true, false) {
		r.forwarded.memory.sub(rec.Footprint())
		if rec.Guard.Isolated {
			r.forwarded.isolation.Add(-int64(rec.Bytes))
		}
	}
	return b, err
}

// noteReleased notes that the upstream has released a guarded block.
func (r *Resource) noteReleased(rec *ledger.Record) {
	spare := rec.Guard.Layout.Total() - rec.Bytes
	if rec.Guard.Forwarded.CompareAndSwap(true, false) {
		r.forwarded.memory.sub(rec.Footprint())
		spare += rec.Bytes
	}
	if rec.Guard.Isolated {
		r.forwarded.isolation.Add(-int64(spare))
	}
	r.forwarded.released.Add(1)
}

// patience is the time that one request may wait or ask again, because the
// device may be waiting for the program, and because what others give back may be
// taken by others for ever. It begins with the first look at it.
type patience struct {
	ctx     context.Context
	cancel  context.CancelFunc
	waiting *atomic.Int64 // nil unless it is counted there
}

func (p *patience) begin(ctx context.Context, atMost time.Duration) {
	if p.ctx == nil {
		p.ctx, p.cancel = context.WithTimeout(ctx, atMost)
	}
}

// count counts who waits, until end.
func (p *patience) count(waiting *atomic.Int64) {
	if p.waiting == nil {
		p.waiting = waiting
		waiting.Add(1)
	}
}

func (p *patience) end() {
	if p.cancel != nil {
		p.cancel()
	}
	if p.waiting != nil {
		p.waiting.Add(-1)
	}
}

// pause waits a while; it reports whether there is patience left.
func (p *patience) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// patiences is how often Config.Patience goes into the longest wait.
const patiences = 10

// outwait waits for the device to pass something of what the guard has passed
// on, if all of that would do for a request that was refused with err, and
// reports whether it has. seen is how far it was before the request. There is no
// patience for a ctx that has ended.
func (r *Resource) outwait(ctx context.Context, p *patience, seen progress, err error) bool {
	p.begin(ctx, patiences*max(r.cfg.Patience, 0))
	if p.ctx.Err() != nil {
		return false
	}
	if r.forwarded.released.Load() != seen.released {
		return true
	}
	if !r.forwardedSuffices(err) || r.forwarded.vain.Load() == seen.released+1 {
		return false
	}
	p.count(&r.forwarded.waiting)
	for began, wait := time.Now(), 20*time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		if r.upstream.ReapPending(ctx) != nil {
			return false // the next request tells, if it lasts
		}
		if r.forwarded.released.Load() != seen.released {
			return true
		}
		if time.Since(began) > r.cfg.Patience {
			r.forwarded.vain.Store(seen.released + 1)
			return false
		}
		if !p.pause(wait) {
			return false
		}
	}
}

// forwardedSuffices reports whether what the guard has passed on would do for a
// request that was refused with err.
func (r *Resource) forwardedSuffices(err error) bool {
	pending := r.forwarded.memory.amount().Bytes
	if short, ok := errors.AsType[*core.OutOfBudgetError](err); ok {
		return pending > 0 && short.Remaining+pending >= short.Requested
	}
	return pending > 0
}
