package budget

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
)

// Allocate charges the request and passes it on. It never waits: if the
// bytes do not fit, or the device has no memory, it asks the upstream to reap
// and tries once more. Errors: core.InvalidRequestError, also for a claim
// that is not open; core.OutOfBudgetError, which matches core.ErrClaimExceeded
// if it is the claim that is short; and the upstream's. After an error nothing is charged.
func (r *Resource) Allocate(ctx context.Context, req core.Request) (b core.Block, err error) {
	if err := normalize(&req); err != nil {
		return b, err
	}
	var c *claim
	if req.Claim != 0 {
		if c, err = r.claims.find("Allocate", req.Claim); err != nil {
			return b, err
		}
		req.Claim = 0 // it means nothing to the layers below
	}
	err = r.attempt(ctx, &req, c, &b)
	if err != nil && curable(err) {
		err = r.retry(ctx, &req, c, &b, err)
	}
	return b, err
}

// normalize fills in what the ledger goes by. The upstream checks the rest,
// and what it refuses is not charged.
func normalize(req *core.Request) error {
	if req.Bytes == 0 || req.Requested > req.Bytes {
		_, err := req.Normalize("Allocate")
		return err
	}
	if req.Requested == 0 {
		req.Requested = req.Bytes
	}
	req.Tag = req.Tag.OrUntagged()
	return nil
}

// shortage is the error inside the package of a purse that has not the bytes;
// the caller gets the explained refusal made from it.
type shortage struct {
	purse            purse
	bytes, remaining uint64
}

func (s *shortage) Error() string { return fmt.Sprintf("%d bytes short of budget", s.bytes) }

// isShort returns the shortage that err is, nil if it is none.
func isShort(err error) *shortage {
	var short *shortage
	if errors.As(err, &short) {
		return short
	}
	return nil
}

// curable reports whether reaping may help.
func curable(err error) bool {
	return isShort(err) != nil || errors.Is(err, core.ErrOutOfMemory)
}

// retry is the second and last attempt, after a reap. first is why the first
// one failed.
func (r *Resource) retry(ctx context.Context, req *core.Request, c *claim, b *core.Block, first error) error {
	reaped := r.upstream.ReapPending(ctx)
	err := r.attempt(ctx, req, c, b)
	short := isShort(err)
	if short == nil && isShort(first) == nil {
		r.repeated.Add(1) // the upstream failed once more than is told
	}
	if short == nil {
		return alsoReap(err, reaped)
	}
	if isShort(first) == nil {
		return alsoReap(first, reaped)
	}
	return r.refuse(ctx, req, short, reaped)
}

// alsoReap adds the error of the reap, if any, to err: it may be the reason,
// and a lost device must not go unnoticed.
func alsoReap(err, reaped error) error {
	if err == nil || reaped == nil {
		return err
	}
	return fmt.Errorf("%w; the reap before the retry failed too: %w", err, reaped)
}

// attempt charges req to c, or to the general ledger if that is nil, and asks
// the upstream once. It fills b only if it succeeds.
func (r *Resource) attempt(ctx context.Context, req *core.Request, c *claim, b *core.Block) error {
	var g grant
	if err := r.obtain(req, c, &g); err != nil {
		return err
	}
	got, err := r.upstream.Allocate(ctx, *req)
	if err != nil {
		g.undo()
		return err
	}
	g.record.become(got.ID.Generation)
	*b = got
	return nil
}

// Deallocate passes the free on. Once it has succeeded the block's bytes are
// pending; they leave the ledger by notice. After an error nothing changed.
// Errors are the upstream's; it does not block.
func (r *Resource) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	b, err := r.upstream.Deallocate(ctx, id)
	if err != nil {
		return b, err
	}
	if l := r.lanes.peek(b.ID.AllocStream); l != nil {
		l.retire(b.ID.Generation)
		l.mu.Unlock()
	}
	return b, nil
}

// Withhold counts a live block among the holders as what it is above, and passes
// on. It stays charged.
func (r *Resource) Withhold(id core.BlockID, as core.BlockState) {
	if l := r.lanes.peek(id.AllocStream); l != nil {
		l.withhold(id.Generation, as)
		l.mu.Unlock()
	}
	r.below.Withhold(id, as)
}

// notices hears from the upstream which blocks the device has passed.
type notices struct{ budget *Resource }

var _ core.Listener = notices{}

// Released takes the block off the ledger. Its bytes are those of the record,
// not of the notice: exactly what was charged. A generation without a record
// was allocated around the budget.
func (n notices) Released(b core.Block) {
	if l := n.budget.lanes.peek(b.ID.AllocStream); l != nil {
		l.release(b.ID.Generation)
		l.mu.Unlock()
	}
}
