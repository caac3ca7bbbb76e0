package fencepost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

type jobOptions struct {
	reserve bool
	bytes   uint64
	wait    time.Duration
}

func newJobOptions(options []JobOption) (o jobOptions) {
	for _, option := range options {
		if option != nil {
			option(&o)
		}
	}
	return o
}

// Reserve sets bytes of the budget aside for a job before it begins, so that it
// is not refused halfway; what it allocates is drawn from them. Reserve the sum of
// what the job uploads and allocates: it is counted as asked for, not rounded up.
// What the job frees early returns to its reservation. The guard's red zones are
// not drawn from it but from the rest of the budget; where nothing is left, blocks
// have none, which is the reason guard_gaps of [Runtime.Health]. An allocation
// beyond the reservation is refused with [core.ErrClaimExceeded], also if the
// budget has room.
//
// If the bytes are not free the job waits, holding nothing, until they are
// released or wait or its context is over. Then Do returns the budget's refusal, a
// [core.OutOfBudgetError] that names the largest holders, or the context's error.
// A wait of 0 refuses at once; more bytes than the limit are refused at once too.
// Zero bytes are a [core.InvalidRequestError], although an upload of no values is
// none: leave Reserve out then.
func Reserve(bytes uint64, wait time.Duration) JobOption {
	return func(o *jobOptions) { o.reserve, o.bytes, o.wait = true, bytes, wait }
}

// The pauses between two looks at the budget of a job that waits.
const (
	firstPause = time.Millisecond
	lastPause  = 20 * time.Millisecond
)

// reserveWithin asks as soon as the bytes seem to fit, and at the latest when
// the wait is over. It looks before it asks, because each refusal counts.
func (r *Runtime) reserveWithin(ctx context.Context, bytes uint64, tag core.Tag, wait time.Duration) (core.Claim, error) {
	over := wait <= 0
	patient, cancel := context.WithTimeout(ctx, wait) // the guard's own patience ends with it
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if err := ctx.Err(); err != nil {
			return core.Claim{}, fmt.Errorf("the job %q waited for %d bytes of device memory: %w", tag.OrUntagged(), bytes, err)
		}
		fits, never := r.mayFit(ctx, bytes)
		if last := over || never; last || fits {
			claim, err := r.Reserve(patient, bytes, tag)
			if err == nil || last || !errors.Is(err, core.ErrOutOfBudget) {
				return claim, err
			}
		}
		select {
		case <-patient.Done():
			over = true
		case <-time.After(pause):
		}
	}
}

// mayFit reports whether asking may help now, and whether it never will: for more
// than the limit, and on a runtime that admits nothing any more. What the guard
// holds in quarantine it gives up before a request is refused.
func (r *Runtime) mayFit(ctx context.Context, bytes uint64) (fits, never bool) {
	_ = r.ReapPending(ctx) // a failure shows in what comes next
	st := r.Stats()
	charged := st.Charged - min(st.Charged, st.Quarantined.Bytes)
	return bytes <= st.Limit-min(st.Limit, charged), bytes > st.Limit || !r.Runtime.Health().OK
}
