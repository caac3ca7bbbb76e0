package debugguard

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// outOfMemory reports whether err is a want of memory.
func outOfMemory(err error) bool {
	return errors.Is(err, core.ErrOutOfBudget) || errors.Is(err, core.ErrOutOfMemory)
}

// curable reports whether err is a want of memory that giving some back may cure:
// not that of a request that is larger than the budget.
func curable(err error) bool {
	short, ok := errors.AsType[*core.OutOfBudgetError](err)
	return outOfMemory(err) && (!ok || short.Limit == 0 || short.Requested <= short.Limit)
}

// obtain asks the upstream for a block, into b, and gives up quarantine, oldest
// first and in steps, as long as that is what it takes. The frees are queued, not
// waited for: an upstream may reuse their bytes in stream order.
func (r *Resource) obtain(ctx context.Context, req *core.Request, b *core.Block) (err error) {
	given := r.given()
	if *b, err = r.upstream.Allocate(ctx, *req); err != nil && curable(err) {
		*b, err = r.relieve(ctx, *req, given, err)
	}
	return err
}

// maxRelief bounds the rounds of one request: quarters of what quarantine holds
// come to an end before, but others' frees may go on for ever.
const maxRelief = 64

// relieve gives up quarantine until the request is granted or nothing is left.
// given is what had been given up before it was refused.
func (r *Resource) relieve(ctx context.Context, req core.Request, given uint64, first error) (b core.Block, err error) {
	began := r.cfg.Now()
	err = first
	for rounds := 0; rounds < maxRelief && curable(err) && r.giveUp(ctx, req.Bytes, given); rounds++ {
		r.hide(err)
		given = r.given()
		b, err = r.upstream.Allocate(ctx, req)
	}
	if err == nil {
		r.relieved(ctx, req, began, first)
	}
	return b, err
}

// Reserve asks the upstream, and gives up quarantine before it is refused. A
// claim is lent nothing that is pending: where the device has not passed the
// frees yet it is refused, with those bytes as pending, and no more is given up
// for it. The guard's own overhead is never drawn from a claim.
func (r *Resource) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	given := r.given()
	c, err := r.upstream.Reserve(ctx, bytes, tag)
	if err == nil {
		return c, nil
	}
	began, first := r.cfg.Now(), err
	for rounds := 0; rounds < maxRelief && curable(err) && !pendingWouldDo(err) && r.giveUp(ctx, bytes, given); rounds++ {
		r.hide(err)
		given = r.given()
		c, err = r.upstream.Reserve(ctx, bytes, tag)
	}
	if err == nil {
		r.relieved(ctx, core.Request{Bytes: bytes, Requested: bytes, Tag: tag}, began, first)
	}
	return c, err
}

// pendingWouldDo reports whether a refused claim lacks only what the device has
// yet to pass.
func pendingWouldDo(err error) bool {
	short, ok := errors.AsType[*core.OutOfBudgetError](err)
	return ok && short.Remaining+short.Pending >= short.Requested
}

// given counts the blocks that were given up for any reason.
func (r *Resource) given() uint64 { return r.count.evicted.Load() + r.sentinels.freed.Load() }

// giveUp evicts a step: the sentinels, and when there are none left the bytes
// that are needed, or a quarter of quarantine if that is more. It reports whether
// anything was freed, by this call or by others since the number of blocks given
// was read.
func (r *Resource) giveUp(ctx context.Context, bytes, given uint64) bool {
	r.evicting.Lock()
	if r.given() == given {
		freed, _ := r.trimSentinels(ctx, 0) // what fails stays, for later
		if freed == 0 {
			freed, _ = r.evict(ctx, max(bytes, r.quarantine.size().Bytes/4), false)
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
	if errors.Is(err, core.ErrOutOfBudget) {
		r.count.hiddenRefusals.Add(1)
		return
	}
	r.count.hiddenFailures.Add(1)
}

// relieved counts and reports a refusal that was cured.
func (r *Resource) relieved(ctx context.Context, req core.Request, began time.Time, refusal error) {
	r.count.relieved.Add(1)
	if r.cfg.Events == nil {
		return
	}
	r.cfg.Events.Emit(core.Event{
		Op: core.OpRefusal, Layer: "debugguard", Time: began, Duration: r.cfg.Now().Sub(began),
		Ordinal: r.Ordinal(), Stream: req.Stream, Tag: req.Tag.OrUntagged(),
		Block:     core.BlockID{AllocStream: req.Stream, Ordinal: r.Ordinal()},
		Requested: req.Requested, Bytes: req.Bytes, Relieved: true, Span: core.SpanOf(ctx), Err: refusal,
	})
}
