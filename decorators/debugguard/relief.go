package debugguard

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
)

// Memory that the guard uses for itself must be no reason to refuse a caller. So
// when memory is short the guard does this, in order:
//
//   - it gives up quarantine. A budget lends the bytes of those frees to requests
//     of the same stream;
//   - it waits for the device, where the frees are pending on another stream or
//     are of isolated blocks, whose bytes are never lent;
//   - it hands the block out without isolation and without red zones.

// outOfMemory reports whether err is a want of memory.
func outOfMemory(err error) bool {
	return refused(err) || errors.Is(err, core.ErrOutOfMemory)
}

// refused reports whether err is a refusal of the budget's, or of a reservation.
// What quarantine holds may be the reservation's too.
func refused(err error) bool {
	return errors.Is(err, core.ErrOutOfBudget) || errors.Is(err, core.ErrClaimExceeded)
}

// curable reports whether err is a want of memory that giving some back may cure:
// not that of a request that is larger than the budget, or its reservation.
func curable(err error) bool {
	short, ok := errors.AsType[*core.OutOfBudgetError](err)
	if !ok {
		return outOfMemory(err)
	}
	most := short.Limit
	if short.Claim != 0 {
		most = short.Reserved
	}
	return most == 0 || short.Requested <= most
}

// want is a request that was refused, as far as relief goes by it.
type want struct {
	bytes uint64
	// inOrder is set if what is pending on its own stream is lent to it.
	inOrder bool
	// patient is set if it waits for the device before it is refused.
	patient bool
}

// obtain asks the upstream for a block, into b, and again as long as relieve
// finds a reason to.
func (r *Resource) obtain(ctx context.Context, req *core.Request, b *core.Block, patient bool) (err error) {
	seen := r.progress()
	if *b, err = r.upstream.Allocate(ctx, *req); err == nil || !curable(err) {
		return err
	}
	began, first := r.cfg.Now(), err
	err = r.relieve(ctx, want{req.Bytes, !req.Isolated, patient}, seen, err, func() (err error) {
		*b, err = r.upstream.Allocate(ctx, *req)
		return err
	})
	if err == nil {
		r.relieved(ctx, req, began, first)
	}
	return err
}

// Reserve asks the upstream, and gives up quarantine before it is refused. A
// claim is lent nothing that is pending: once what is would do, no more is given
// up for it, and the device is waited for as in Allocate. The guard's own overhead
// is never drawn from a claim.
func (r *Resource) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	seen := r.progress()
	c, err := r.upstream.Reserve(ctx, bytes, tag)
	if err == nil {
		return c, nil
	}
	began, first, req := r.cfg.Now(), err, core.Request{Bytes: bytes, Requested: bytes, Tag: tag}
	err = r.relieve(ctx, want{bytes: bytes, patient: true}, seen, err, func() (err error) {
		c, err = r.upstream.Reserve(ctx, bytes, tag)
		return err
	})
	if err == nil {
		r.relieved(ctx, &req, began, first)
	} else {
		r.passRefusal(ctx, &req, err)
	}
	return c, err
}

// maxRelief bounds the rounds of one request. Giving up a quarter of quarantine at
// a time ends sooner, but frees of others may go on for ever.
const maxRelief = 64

// relieve makes a request that was refused with err again, each time after a part
// of quarantine was given up for it, oldest first, or after the device has
// completed a free of the guard's: until it is granted or nothing is left to give.
// seen is the progress before err.
func (r *Resource) relieve(ctx context.Context, w want, seen progress, err error, again func() error) error {
	var p patience
	defer p.end()
	for rounds := 0; curable(err); {
		switch {
		case rounds < maxRelief && (w.inOrder || !r.pendingSuffices(err)) && r.giveUp(ctx, w.bytes, seen.given):
			rounds++
		case w.patient && r.outwait(ctx, &p, seen, err):
		default:
			return err
		}
		r.hide(err)
		seen = r.progress()
		err = again()
	}
	return err
}

// pendingSuffices reports whether a refused request lacks only what the device
// has yet to pass. What open intents keep is not on its way to it.
func (r *Resource) pendingSuffices(err error) bool {
	short, ok := errors.AsType[*core.OutOfBudgetError](err)
	return ok && short.Remaining+less(short.Pending, r.blockedFrees.amount().Bytes) >= short.Requested
}

// progress is what a want of memory may be cured by: blocks that were given up,
// and those that the upstream has released since.
type progress struct{ given, released uint64 }

func (r *Resource) progress() progress { return progress{r.given(), r.forwarded.released.Load()} }

// given counts the blocks that were given up for any reason.
func (r *Resource) given() uint64 { return r.count.evicted.Load() + r.canaries.freed.Load() }

// giveUp evicts a step: the canaries, and when there are none left the bytes
// that are needed, or a quarter of quarantine if that is more. The frees are
// queued, not waited for. It reports whether anything was freed, by this call or
// by others since the number of blocks given was read.
func (r *Resource) giveUp(ctx context.Context, bytes, given uint64) bool {
	r.evicting.Lock()
	if r.given() == given {
		freed, _ := r.trimCanaries(ctx, 0, never) // what fails stays, for later
		if freed == 0 {
			freed, _ = r.evict(ctx, r.quarantine.dequeue(max(bytes, r.quarantine.size().Bytes/4)), never)
		}
		r.givenUp.add(core.Amount{Bytes: freed, Blocks: r.given() - given})
	}
	r.evicting.Unlock()
	if r.given() == given {
		return false
	}
	_ = r.upstream.ReapPending(ctx) // what fails here, the next attempt tells
	return true
}

// hide keeps an error that the caller is not told out of the statistics.
func (r *Resource) hide(err error) {
	if refused(err) {
		r.count.hiddenRefusals.Add(1)
		return
	}
	r.count.hiddenFailures.Add(1)
}

// relieved counts and reports a refusal that was cured.
func (r *Resource) relieved(ctx context.Context, req *core.Request, began time.Time, refusal error) {
	r.count.relieved.Add(1)
	r.emit(ctx, req, began, refusal, true)
}

// passRefusal reports a refusal that the caller is told of. The layers below may
// have refused the same request several times before.
func (r *Resource) passRefusal(ctx context.Context, req *core.Request, err error) {
	if refused(err) {
		r.emit(ctx, req, r.cfg.Now(), err, false)
	}
}

func (r *Resource) emit(ctx context.Context, req *core.Request, began time.Time, refusal error, relieved bool) {
	if r.cfg.Events == nil {
		return
	}
	e := core.Event{
		Op: core.OpRefusal, Layer: "debugguard", Time: began, Ordinal: r.Ordinal(), Stream: req.Stream, Tag: req.Tag.OrUntagged(),
		Block:     core.BlockID{AllocStream: req.Stream, Ordinal: r.Ordinal()},
		Requested: req.Requested, Bytes: req.Bytes, Relieved: relieved, Span: core.SpanOf(ctx), Err: refusal,
	}
	if e.Requested == 0 {
		e.Requested = req.Bytes
	}
	if relieved {
		e.Duration = r.cfg.Now().Sub(began)
	}
	r.cfg.Events.Emit(ctx, e)
}

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

// patience bounds the time that one request may wait and be repeated: the device
// may be waiting for the program, and other requests may take what is released,
// again and again. It begins with the first wait.
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

// outwait waits until the device has completed a forwarded free, if all of those
// together would make room for a request that was refused with err, and reports
// whether it has. seen is the progress before the request. It does not wait if ctx
// has ended.
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

// forwardedSuffices reports whether the forwarded frees would make room for a
// request that was refused with err.
func (r *Resource) forwardedSuffices(err error) bool {
	pending := r.forwarded.memory.amount().Bytes
	if short, ok := errors.AsType[*core.OutOfBudgetError](err); ok {
		return pending > 0 && short.Remaining+pending >= short.Requested
	}
	return pending > 0
}
