package debugguard

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
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

// obtain asks the upstream for a block, into b, and again as long as relieve
// finds a reason to. A patient caller waits for the device before it is refused.
func (r *Resource) obtain(ctx context.Context, req *core.Request, b *core.Block, patient bool) (err error) {
	seen := r.progress()
	if *b, err = r.upstream.Allocate(ctx, *req); err == nil || !curable(err) {
		return err
	}
	returned := false
	defer func() {
		if !returned && b.ID.Generation != 0 { // who hears of refusals panics, and nobody gets the block
			_, _ = r.upstream.Deallocate(context.WithoutCancel(ctx), b.ID)
		}
	}()
	err = r.relieve(ctx, want{req, !req.Isolated, patient}, seen, err, func() (err error) {
		*b, err = r.upstream.Allocate(ctx, *req)
		return err
	})
	returned = true
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
	req := core.Request{Bytes: bytes, Requested: bytes, Tag: tag}
	err = r.relieve(ctx, want{req: &req, patient: true}, seen, err, func() (err error) {
		c, err = r.upstream.Reserve(ctx, bytes, tag)
		return err
	})
	if err != nil {
		r.passRefusal(ctx, &req, err)
	}
	return c, err
}

// want is a request that was refused, as far as relief goes by it.
type want struct {
	req *core.Request
	// inOrder is set if what is pending on its own stream is lent to it.
	inOrder bool
	// patient is set if it waits for the device before it is refused.
	patient bool
}

const (
	// maxRelief bounds the rounds of one request. Giving up a quarter of quarantine at
	// a time ends sooner, but frees of others may go on for ever.
	maxRelief = 64
	// patiences is how often Config.Patience goes into the time that one request may
	// wait and be repeated: the device may be waiting for the program, and other
	// requests may take what is released, again and again.
	patiences = 10
)

// relieve makes a request that was refused with err again, each time after a part
// of quarantine was given up for it, oldest first, or after the device has
// completed a free of the guard's: until it is granted or nothing is left to give.
// seen is the progress before err.
func (r *Resource) relieve(ctx context.Context, w want, seen progress, err error, again func() error) error {
	patient, end := context.WithTimeout(ctx, patiences*max(r.cfg.Advanced.Patience, 0))
	defer end()
	began, first, waits := r.cfg.Advanced.Now(), err, false
	defer func() {
		if waits {
			r.forwarded.waiting.Add(-1)
		}
	}()
	for rounds := 0; curable(err); {
		switch {
		case rounds < maxRelief && (w.inOrder || !r.pendingSuffices(err)) && r.giveUp(ctx, w.req.Bytes, seen.given):
			rounds++
		case !w.patient || !r.mayOutwait(patient, seen, err):
			return err
		default:
			if !waits {
				waits = true
				r.forwarded.waiting.Add(1)
			}
			if !r.outwait(patient, seen) {
				return err
			}
		}
		r.hide(err)
		seen = r.progress()
		err = again()
	}
	if err == nil {
		r.count.relieved.Add(1)
		r.emit(ctx, w.req, began, first, true)
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
	if r.giveUpLocked(ctx, bytes, given); r.given() == given {
		return false
	}
	_ = r.upstream.ReapPending(ctx) // what fails here, the next attempt tells
	return true
}

func (r *Resource) giveUpLocked(ctx context.Context, bytes, given uint64) {
	r.evicting.Lock()
	defer r.evicting.Unlock()
	if r.given() == given {
		freed, _ := r.giveUpCanaries(ctx, math.MaxUint64, never) // what fails stays, for later
		if freed == 0 {
			freed, _ = r.evict(ctx, &r.quarantine.queue, r.quarantine.queue.dequeue(max(bytes, r.quarantine.queue.size().Bytes/4)), never)
		}
		r.givenUp.add(core.Amount{Bytes: freed, Blocks: r.given() - given})
	}
}

// hide keeps an error that the caller is not told out of the statistics.
func (r *Resource) hide(err error) {
	if refused(err) {
		r.count.hiddenRefusals.Add(1)
		return
	}
	r.count.hiddenFailures.Add(1)
}

// passRefusal reports a refusal that the caller is told of. The layers below may
// have refused the same request several times before.
func (r *Resource) passRefusal(ctx context.Context, req *core.Request, err error) {
	if refused(err) {
		r.emit(ctx, req, r.cfg.Advanced.Now(), err, false)
	}
}

func (r *Resource) emit(ctx context.Context, req *core.Request, began time.Time, refusal error, relieved bool) {
	if r.cfg.Advanced.Events == nil {
		return
	}
	e := oplog.Event{
		Op: oplog.OpRefusal, Layer: "debugguard", Time: began, Ordinal: r.Ordinal(), Stream: req.Stream, Tag: req.Tag.OrUntagged(),
		Block:     core.BlockID{AllocStream: req.Stream, Ordinal: r.Ordinal()},
		Requested: cmp.Or(req.Requested, req.Bytes), Bytes: req.Bytes, Relieved: relieved, Span: core.SpanOf(ctx), Err: refusal,
	}
	if relieved {
		e.Duration = r.cfg.Advanced.Now().Sub(began)
	}
	r.cfg.Advanced.Events.Emit(ctx, e)
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
func (r *Resource) forwardFree(ctx context.Context, rec *ledger.Record) (b core.Block, err error) {
	rec.Guard.Forwarded.Store(true)
	r.forwarded.memory.add(rec.Footprint())
	if rec.Guard.Isolated {
		r.forwarded.isolation.Add(int64(rec.Bytes))
	}
	returned := false
	defer func() {
		if (err != nil || !returned && !r.gone(rec)) && rec.Guard.Forwarded.CompareAndSwap(true, false) {
			r.forwarded.memory.sub(rec.Footprint())
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
		r.forwarded.memory.sub(rec.Footprint())
		spare += rec.Bytes
	}
	if rec.Guard.Isolated {
		r.forwarded.isolation.Add(-int64(spare))
	}
	r.forwarded.released.Add(1)
}

// mayOutwait reports whether a request that was refused with err is worth waiting
// for: the forwarded frees together would make room for it, or one of them is
// completed already.
func (r *Resource) mayOutwait(patient context.Context, seen progress, err error) bool {
	if patient.Err() != nil {
		return false
	}
	if r.forwarded.released.Load() != seen.released {
		return true
	}
	return r.forwardedSuffices(err) && r.forwarded.vain.Load() != seen.released+1
}

// outwait waits until the device has completed a forwarded free, and reports whether
// it has. seen is the progress before the request.
func (r *Resource) outwait(patient context.Context, seen progress) bool {
	one, end := context.WithTimeout(patient, r.cfg.Advanced.Patience)
	defer end()
	err := deadline.Poll(one, func() (bool, error) {
		if r.forwarded.released.Load() != seen.released {
			return true, nil
		}
		err := r.upstream.ReapPending(patient) // one that fails, the next request tells, if it lasts
		return r.forwarded.released.Load() != seen.released, err
	})
	if err != nil && one.Err() != nil && patient.Err() == nil {
		r.forwarded.vain.Store(seen.released + 1)
	}
	return err == nil
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
