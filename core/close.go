package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Close refuses further work, has a layer that can compare what was never given
// back do so ([LiveChecker]), waits until the device has passed that and every
// queued free or ctx ends, and reports what was never given back, each leak as a
// finding too. It does not free leaked blocks: work that the runtime does not
// know of may still use them. Uses that are open may still be ended. A second
// Close returns [ErrClosed].
func (r *Runtime) Close(ctx context.Context) (Leftover, error) {
	if r == nil {
		return Leftover{}, r.missing("Close")
	}
	if !r.closed.CompareAndSwap(false, true) {
		return Leftover{}, fmt.Errorf("Close refused: the runtime is %w", ErrClosed)
	}
	var err error
	if r.poisoned.Load() == nil {
		err = r.settle(ctx)
	}
	stats := r.resource.Stats()
	left := Leftover{OpenIntents: stats.OpenIntents, LeakedBytes: stats.Live.Requested, closed: time.Now()}
	if stats.Underflows > 0 {
		r.report(Finding{Kind: FindingAccountingMismatch,
			Text: fmt.Sprintf("%d attempts to take a byte counter of %v below zero: its books are wrong, which is a bug of that resource", stats.Underflows, r.resource)})
	}
	inspector, ok := Find[Inspector](r.resource)
	if r.poisoned.Load() != nil {
		return left, err // nothing could be given back: those are no leaks
	}
	if ok {
		left.LeakedBytes = 0
		inspector.Blocks(func(info BlockInfo) bool {
			if info.Block.State == Live {
				left.Leaks = append(left.Leaks, info)
				left.LeakedBytes += info.Block.Requested
			}
			return true
		})
	}
	for _, leak := range left.Leaks {
		r.reportLeak(leak)
	}
	if err != nil {
		err = errors.Join(errors.New("Close: not everything was given back by the device"), err)
	}
	return left, err
}

func (r *Runtime) reportLeak(leak BlockInfo) {
	now := time.Now()
	text := fmt.Sprintf("%d bytes tagged %q were never given back", leak.Block.Requested, leak.Block.Tag)
	if !leak.Allocated.IsZero() {
		text += fmt.Sprintf(", allocated %v ago", now.Sub(leak.Allocated).Round(10*time.Millisecond))
	}
	r.report(Finding{Kind: FindingLeak, Time: now, Victim: leak.Block, AllocStack: leak.AllocStack, Uses: leak.Uses, Origin: leak.AllocSpan, Text: text})
}
