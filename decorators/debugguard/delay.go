package debugguard

import (
	"context"
	"math/bits"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/canary"
)

// delayedShare is one in how many launches begins with a delay.
const delayedShare = 4

// delay puts a delay on the stream of a launch that was prepared: behind the
// waits that were queued for it, and in front of what the caller will enqueue.
// Work elsewhere that nothing orders behind this launch then overtakes it, as
// it would some day without. A delay that cannot be enqueued is left out.
func (r *Resource) delay(ctx context.Context, stream core.StreamID) {
	if r.cfg.Device == nil || !r.hunting(delaying) {
		return
	}
	length := delayOf(r.cfg.Hunt, r.count.draws.Add(1))
	if length == 0 {
		return
	}
	if err := r.cfg.Device.Delay(ctx, stream, length); err != nil {
		r.noteCapture(err)
		return
	}
	r.count.delays.Add(1)
}

// delayOf draws the delay of the n-th launch, none for most. The rest lie evenly
// between nothing and twice the mean.
func delayOf(h HuntConfig, n uint64) time.Duration {
	draw := canary.Mix(h.DelaySeed ^ canary.Mix(n))
	if draw%delayedShare != 0 {
		return 0
	}
	mean := uint64(orDefault(h.Delay, DefaultDelay))
	length, _ := bits.Mul64(draw, 2*mean)
	return time.Duration(max(length, 1))
}
