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
	"github.com/fencepost-gpu/fencepost/internal/refuse"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// Neither memory that the guard uses for itself nor memory that is freed and only waits for
// the device must be a reason to refuse a caller. So when memory is short the guard does this,
// in order:
//
//   - it gives up quarantine. A budget lends the bytes of those frees to requests
//     of the same stream;
//   - it waits for the device, in every mode, where frees are pending, whosever they are;
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
	given := r.given()
	if *b, err = r.upstream.Allocate(ctx, *req); err == nil || !curable(err) {
		return err
	}
	returned := false
	defer func() {
		if !returned && b.ID.Generation != 0 { // a listener of refusals panics, so the block has no owner
			_, _ = r.upstream.Deallocate(context.WithoutCancel(ctx), b.ID)
		}
	}()
	err = r.relieve(ctx, want{req, !req.Isolated, patient}, given, err, func() (err error) {
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
func (r *Resource) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (c core.Claim, err error) {
	given := r.given()
	if c, err = r.upstream.Reserve(ctx, bytes, tag); err == nil {
		return c, nil
	}
	returned := false
	defer func() {
		if !returned && c.ID != 0 { // as in obtain
			_ = r.upstream.ReleaseClaim(context.WithoutCancel(ctx), c.ID)
		}
	}()
	req := core.Request{Bytes: bytes, Requested: bytes, Tag: tag}
	err = r.relieve(ctx, want{req: &req, patient: true}, given, err, func() (err error) {
		c, err = r.upstream.Reserve(ctx, bytes, tag)
		return err
	})
	returned = true
	if err != nil {
		err = refuse.Waited(err, refuse.WaitIn(ctx), bytes, tag)
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

// maxRelief bounds the rounds of one request. Giving up a quarter of quarantine at
// a time ends sooner, but frees of others may go on for ever.
const maxRelief = 64

// relief is the search for memory for one request that was refused.
type relief struct {
	want   want
	given  uint64 // how many blocks had been given up before the last refusal
	rounds int
	first  error
	began  time.Time
	wait   pendingWait
}

func (r *Resource) newRelief(w want, given uint64, first error) *relief {
	return &relief{want: w, given: given, first: first, began: r.cfg.Advanced.Now()}
}

// relieve makes a request that was refused with err again, each time that relieves finds a reason to.
// given is how many blocks had been given up before err.
func (r *Resource) relieve(ctx context.Context, w want, given uint64, err error, again func() error) error {
	f, ended := r.newRelief(w, given, err), false
	defer func() {
		if !ended { // who hears of something panics
			r.endWait(&f.wait, f.want.req, err)
		}
	}()
	for curable(err) && r.relieves(ctx, f, err) {
		r.hide(err)
		err = again()
	}
	ended = true
	return r.endRelief(ctx, f, err)
}

// relieves reports whether a request that was refused with err is worth being made again: after a part
// of quarantine was given up for it, oldest first, or after something came of the wait
// for the device; until nothing is left to give or to wait for, or Advanced.Patience is over.
func (r *Resource) relieves(ctx context.Context, f *relief, err error) bool {
	switch {
	case f.rounds < maxRelief && (f.want.inOrder || !r.pendingSuffices(err)) && r.giveUp(ctx, f.want.req.Bytes, f.given):
		f.rounds++
	case !f.want.patient || !r.goOn(ctx, &f.wait, f.want.req, err):
		return false
	}
	f.given = r.given()
	return true
}

// endRelief counts and tells what came of it.
func (r *Resource) endRelief(ctx context.Context, f *relief, err error) error {
	r.endWait(&f.wait, f.want.req, err)
	if err != nil {
		return f.wait.explain(err, f.want.req)
	}
	r.count.relieved.Add(1)
	r.emit(ctx, f.want.req, f.began, f.first, true)
	return nil
}

// pendingSuffices reports whether a refused request lacks only what the device
// has yet to pass. What open intents keep is not on its way to it.
func (r *Resource) pendingSuffices(err error) bool {
	short, ok := errors.AsType[*core.OutOfBudgetError](err)
	return ok && short.Remaining+less(short.Pending, r.blockedFrees.amount().Bytes) >= short.Requested
}

// given counts the blocks that were given up for any reason.
func (r *Resource) given() uint64 { return r.count.evicted.Load() + r.canaries.freed.Load() }

// giveUp evicts a step: the canaries, and when there are none left the bytes
// that are needed, or a quarter of quarantine if that is more. The frees are
// queued, not waited for. It reports whether anything was freed, by this call or
// by others since the number of blocks given was read.
func (r *Resource) giveUp(ctx context.Context, bytes, given uint64) bool {
	if r.giveUpInTurn(ctx, bytes, given); r.given() == given {
		return false
	}
	_ = r.upstream.ReapPending(ctx) // what fails here, the next attempt tells
	return true
}

func (r *Resource) giveUpInTurn(ctx context.Context, bytes, given uint64) {
	mine := r.evicting.await(ctx)
	defer func() { r.evicting.giveBack(mine) }()
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

// passRefusal reports a refusal that the caller is told of, by a budget, a reservation, the pool or
// the device. The layers below may have refused the same request several times before.
func (r *Resource) passRefusal(ctx context.Context, req *core.Request, err error) {
	if outOfMemory(err) {
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
	usercode.Call("debugguard.Advanced.Events", func() { r.cfg.Advanced.Events.Emit(ctx, e) })
}

// forwardedFrees are what goes by the frees that the upstream has not released yet.
type forwardedFrees struct {
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

// pendingWait is the wait of one request for the device.
type pendingWait struct {
	began   time.Time // zero before it
	patient context.Context
	end     context.CancelFunc
	span    func(error)
	seen    signs
	pause   time.Duration // before it asks again: others may free and take all the time
	pending uint64        // bytes that were on their way when it began
	last    bool          // the request was made for the last time
}

// signs are what changes when something came of a wait.
type signs struct{ pending, behind, freed, charged uint64 }

func (w *pendingWait) took() time.Duration {
	if w.began.IsZero() {
		return 0
	}
	return time.Since(w.began)
}

// explain says that a refused request has waited.
func (w *pendingWait) explain(err error, req *core.Request) error {
	return refuse.Waited(err, core.Wait{For: w.took(), Pending: w.pending}, req.Bytes, req.Tag)
}

// pendingMemory is the memory that is freed and that the device has not come to, if it may make
// room for a request that was refused with err. For a budget it is the Pending of the refusal:
// lower layers may have released that already, and the budget not have heard. Memory that open
// intents keep does not count.
func (r *Resource) pendingMemory(err error) (now signs, bytes uint64) {
	st := r.upstream.Stats()
	now = signs{st.Pending.Bytes, st.OwnPool.Behind, st.Deallocations, st.Charged}
	short, ok := errors.AsType[*core.OutOfBudgetError](err)
	if !ok {
		return now, less(now.pending, r.blockedFrees.amount().Bytes) + now.behind
	}
	if r.pendingSuffices(err) {
		bytes = less(short.Pending, r.blockedFrees.amount().Bytes)
	}
	return now, bytes
}

// goOn waits until something may have come of the frees that the device has yet to come to, and
// reports whether it is worth asking again. It begins the wait, if it has not begun. When there is
// nothing to wait for, or no time, the request is made once more: what was pending may have come
// back since it was refused. So a refusal that stands is younger than a look that found nothing.
func (r *Resource) goOn(ctx context.Context, w *pendingWait, req *core.Request, err error) bool {
	if r.cfg.Advanced.Patience < 0 || ctx.Err() != nil {
		return false
	}
	now, bytes := r.pendingMemory(err)
	if w.began.IsZero() {
		if bytes == 0 {
			return w.onceMore()
		}
		w.began, w.pending = time.Now(), bytes
		w.patient, w.end = context.WithTimeout(ctx, r.cfg.Advanced.Patience)
		if r.cfg.Advanced.BeginStep != nil {
			usercode.Call(stepCode, func() {
				w.span = r.cfg.Advanced.BeginStep(ctx, oplog.Step{Stream: req.Stream, Memory: true, Bytes: req.Bytes})
			})
		}
		r.forwarded.waiting.Add(1)
	}
	if bytes > 0 && w.patient.Err() == nil {
		w.last = false
	}
	time.Sleep(w.pause)
	w.pause = min(2*w.pause+time.Microsecond, time.Millisecond)
	if w.patient.Err() != nil {
		return ctx.Err() == nil && w.onceMore()
	}
	ended := deadline.Poll(w.patient, func() (bool, error) {
		if w.seen != now {
			w.seen = now
			return true, nil
		}
		if bytes == 0 {
			return false, errNothingPending
		}
		reaped := r.upstream.ReapPending(w.patient) // one that fails, the next request tells, if it lasts
		now, bytes = r.pendingMemory(err)
		return false, reaped
	})
	if errors.Is(ended, errNothingPending) || w.patient.Err() != nil {
		return ctx.Err() == nil && w.onceMore()
	}
	return ended == nil // else the device fails
}

// onceMore reports whether the request is to be made for the last time, which is after a look that
// found nothing.
func (w *pendingWait) onceMore() bool {
	last := w.last
	w.last = true
	return !last
}

var errNothingPending = errors.New("no freed memory is pending")

// endWait counts a wait, and tells the account of the request.
func (r *Resource) endWait(w *pendingWait, req *core.Request, err error) {
	if w.began.IsZero() {
		return
	}
	w.end()
	r.forwarded.waiting.Add(-1)
	r.count.waits.Add(1)
	if err == nil {
		r.count.waitsServed.Add(1)
	}
	took := w.took()
	r.count.waited.Add(int64(took))
	if req.Account != nil {
		req.Account.Note(func(j *core.JobAccount) { j.WaitedForMemory += took })
	}
	if w.span != nil {
		usercode.Call(stepCode, func() { w.span(err) })
	}
}

const stepCode = "debugguard.Advanced.BeginStep"
