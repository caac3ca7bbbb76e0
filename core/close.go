package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// quiet is how long Close waits for the next block to be given back, where its context has
// no deadline.
const quiet = 250 * time.Millisecond

// BeginClose refuses new work from now on with [ErrClosed]: allocations, reservations and
// launches. What is out can still be given back, until Close has ended. It does not block.
func (r *Runtime) BeginClose() {
	if r != nil {
		r.refuses.Store(true)
		r.closing.Store(true)
	}
}

// Close refuses new work, as BeginClose, and waits for what is out to be given back: blocks and
// open uses. It waits until ctx's deadline; without one, until nothing was given back for a
// quarter of a second, so that a leak is told soon. Then it refuses to take back what is left,
// except that open uses may still be ended. It has that compared ([Resource.CheckLive]), waits
// until the device has passed every queued free or ctx ends, or for a quarter of a second if it
// has ended, and reports what was never given back, each leak as a finding too. It does not free leaked blocks: work that the runtime does
// not know of may still use them. A second Close returns [ErrClosed].
func (r *Runtime) Close(ctx context.Context) (left Leftover, err error) {
	if r == nil {
		return Leftover{}, missingRuntime("Close")
	}
	if !r.ending.CompareAndSwap(false, true) {
		return Leftover{}, fmt.Errorf("Close refused: the runtime is %w", ErrClosed)
	}
	r.BeginClose()
	r.awaitReturns(ctx)
	r.refuses.Store(true)
	r.closed.Store(true)
	defer func() { // also where the program's code panics in a layer
		left = r.leftover()
		if err != nil && r.lost.Load() == nil {
			err = errors.Join(errors.New("Close: not everything was given back by the device"), err)
		}
	}()
	if r.lost.Load() == nil {
		err = deadline.AtLeastAMoment(r.settle)(ctx) // the wait may have taken all the time there was
	}
	return left, err
}

// leftover is what was never given back, and tells of it.
func (r *Runtime) leftover() Leftover {
	stats := r.resource.Stats()
	left := Leftover{OpenIntents: stats.OpenIntents, LeakedBytes: stats.Live.Requested, closed: time.Now()}
	if stats.Underflows > 0 {
		r.report(Finding{Kind: names.FindingAccountingMismatch,
			Text: fmt.Sprintf("%d attempts to take a byte counter of %v below zero: its books are wrong, which is a bug of that resource", stats.Underflows, r.resource)})
	}
	if r.lost.Load() != nil {
		return left // nothing could be given back: those are no leaks
	}
	var listed uint64
	r.resource.Inspect().Blocks(func(info BlockInfo) bool {
		if info.Block.State == Live {
			left.Leaks = append(left.Leaks, info)
			listed += info.Block.Requested
		}
		return true
	})
	if len(left.Leaks) > 0 { // or the stack lists no blocks
		left.LeakedBytes = listed
	}
	usercode.All(left.Leaks, r.reportLeak)
	return left
}

// awaitReturns waits for what is out to be given back.
func (r *Runtime) awaitReturns(ctx context.Context) {
	_, dated := ctx.Deadline()
	var before uint64
	var since time.Time
	_ = deadline.Poll(ctx, func() (bool, error) {
		st := r.resource.Stats()
		if st.Live.Blocks <= st.Poisoned && st.OpenIntents == 0 || r.lost.Load() != nil {
			return true, nil // of a block that could not be fenced nothing is taken back
		}
		if returned := st.Deallocations + st.Launches + st.Aborts; returned != before || since.IsZero() {
			before, since = returned, time.Now()
		}
		return !dated && time.Since(since) >= quiet, nil
	})
}

// settle has what is live compared, because it will not be freed any more, and
// drains.
func (r *Runtime) settle(ctx context.Context) error {
	checked := r.observe("Close", r.resource.CheckLive(ctx))
	if r.lost.Load() != nil {
		return checked
	}
	return errors.Join(checked, r.Drain(ctx))
}

func (r *Runtime) reportLeak(leak BlockInfo) {
	now := time.Now()
	text := leak.leakText(" were never given back", now, "ago")
	r.report(Finding{Kind: names.FindingLeak, Time: now, Victim: leak.Block, AllocStack: leak.AllocStack, Uses: leak.Uses, Origin: leak.AllocSpan, Text: text})
}
