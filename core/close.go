package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/core/names"
)

// Close refuses further work, has what was never given back compared
// ([Resource.CheckLive]), waits until the device has passed that and every
// queued free or ctx ends, and reports what was never given back, each leak as a
// finding too. It does not free leaked blocks: work that the runtime does not
// know of may still use them. Uses that are open may still be ended. A second
// Close returns [ErrClosed].
func (r *Runtime) Close(ctx context.Context) (Leftover, error) {
	if r == nil {
		return Leftover{}, missingRuntime("Close")
	}
	if !r.closed.CompareAndSwap(false, true) {
		return Leftover{}, fmt.Errorf("Close refused: the runtime is %w", ErrClosed)
	}
	var err error
	if r.lost.Load() == nil {
		err = r.settle(ctx)
	}
	stats := r.resource.Stats()
	left := Leftover{OpenIntents: stats.OpenIntents, LeakedBytes: stats.Live.Requested, closed: time.Now()}
	if stats.Underflows > 0 {
		r.report(Finding{Kind: names.FindingAccountingMismatch,
			Text: fmt.Sprintf("%d attempts to take a byte counter of %v below zero: its books are wrong, which is a bug of that resource", stats.Underflows, r.resource)})
	}
	if r.lost.Load() != nil {
		return left, err // nothing could be given back: those are no leaks
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
	for _, leak := range left.Leaks {
		r.reportLeak(leak)
	}
	if err != nil {
		err = errors.Join(errors.New("Close: not everything was given back by the device"), err)
	}
	return left, err
}

// settle has what is live compared, because nobody will free it any more, and
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
