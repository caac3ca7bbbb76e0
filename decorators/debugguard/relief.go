package debugguard

import (
	"context"
	"math"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/cures"
)

// Memory that the guard uses for itself must be no reason to refuse a caller. So quarantine is one
// of the cures of package cures, and red zones are left out where there is no memory for them.

// obtain asks the upstream for a block of the guard's own layout, into b. A request that is not
// patient does not wait for the device.
func (r *Resource) obtain(ctx context.Context, req *core.Request, b *core.Block, patient bool) error {
	ctx = cures.Own(ctx, patient)
	got := false
	defer func() {
		if !got && b.ID.Generation != 0 { // the program's code panics, so the block has no owner
			_, _ = r.upstream.Deallocate(context.WithoutCancel(ctx), b.ID)
		}
	}()
	err := r.seek(ctx, cures.Want{Request: req}, func() (err error) {
		*b, err = r.upstream.Allocate(ctx, *req)
		return err
	})
	got = true
	return err
}

// seek tries a call of the upstream. Layers that share the guard's path look for memory themselves.
func (r *Resource) seek(ctx context.Context, w cures.Want, try func() error) error {
	if !r.path.Below.Calls() {
		return try()
	}
	room := r.path.Room()
	search, err := room.Seek(ctx, w, try)
	if cures.WasSought(err) {
		return r.path.Told(cures.Bare(err))
	}
	room.Tell(ctx, search, w.Request, err)
	return r.path.Told(err)
}

// Reserve is the upstream's. The guard's own overhead is never drawn from a claim.
func (r *Resource) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (c core.Claim, err error) {
	if r.foundBelow { // by the budget
		return r.upstream.Reserve(ctx, bytes, tag)
	}
	got := false
	defer func() {
		if !got && c.ID != 0 { // as in obtain
			_ = r.upstream.ReleaseClaim(context.WithoutCancel(ctx), c.ID)
		}
	}()
	req := core.Request{Bytes: bytes, Requested: bytes, Tag: tag}
	err = r.seek(ctx, cures.Want{Request: &req, Reserves: true}, func() (err error) {
		c, err = r.upstream.Reserve(ctx, bytes, tag)
		return err
	})
	got = true
	return c, err
}

// heldBack is the guard's quarantine as package cures knows it.
type heldBack struct{ r *Resource }

// Given counts the blocks that were given up for any reason.
func (h heldBack) Given() uint64 { return h.r.given() }

// Blocked is what open intents keep from being freed.
func (h heldBack) Blocked() uint64 { return h.r.blockedFrees.amount().Bytes }

// GiveUp evicts a step: the canaries, and when there are none left the bytes
// that are needed, or a quarter of quarantine if that is more. The frees are
// queued, not waited for. It reports whether anything was freed, by this call or
// by others since the number of blocks given was read.
func (h heldBack) GiveUp(ctx context.Context, bytes, given uint64) bool {
	h.r.giveUpInTurn(ctx, bytes, given)
	return h.r.given() != given
}

// joinRoom adds the guard to the room of its stack, which goes by the guard's settings from now on.
func (r *Resource) joinRoom() {
	room, a := r.path.Room(), &r.cfg.Advanced
	r.foundBelow = room.Searches()
	room.Join(r, r.upstream)
	room.HoldsBack(heldBack{r})
	room.Configure(func(s *cures.Setup) {
		s.Patience, s.BeginStep, s.Now = a.Patience, a.BeginStep, a.Now
		s.Events, s.Layer = a.Events, "debugguard"
	})
}

func (r *Resource) given() uint64 { return r.count.evicted.Load() + r.canaries.freed.Load() }

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
	if cures.Refused(err) {
		r.count.hiddenRefusals.Add(1)
		return
	}
	r.count.hiddenFailures.Add(1)
}
