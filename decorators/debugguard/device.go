package debugguard

import (
	"cmp"
	"context"
	"errors"
	"math/bits"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/canary"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// The names of the guard's own launches in traces and logs below it.
const (
	launchPrefix = "gpumem.guard."
	launchArm    = "gpumem.guard.arm"
	launchFree   = "gpumem.guard.free"
	launchVerify = "gpumem.guard.verify"
)

// work is something that the guard does to blocks on the device.
type work struct {
	name   string
	stream core.StreamID
	uses   []core.Use
	// enqueue does it on the stream it is given. If its error says that nothing was
	// enqueued ([core.NotEnqueued]) it may be called again, with another stream.
	enqueue func(ctx context.Context, stream core.StreamID) error
}

// device does w in the order of all other uses of its blocks. Nothing waits
// for the device, except over an upstream without use tracking.
//
// A block may outlive the lease of its stream, on which nothing can be launched
// any more, and its stream may capture; the default stream takes its place
// then, behind the same fences. A lease that is given back at this very moment,
// before the intent or behind it, is seen by the refusal.
func (r *Resource) device(ctx context.Context, w work) error {
	if !r.tracked {
		return r.synchronously(ctx, w)
	}
	if !r.below.Leased(w.stream) { // to ask costs less than a refused call, which the log would hold against the program
		w.stream = core.DefaultStream
	}
	enqueued, err := r.launch(ctx, w)
	r.noteCapture(err)
	if enqueued || w.stream == core.DefaultStream || !errors.Is(err, core.ErrStreamMisuse) {
		return err
	}
	w.stream = core.DefaultStream
	_, err = r.launch(ctx, w)
	return err
}

// launch does w on its stream. If that is refused nothing of it is left.
func (r *Resource) launch(ctx context.Context, w work) (enqueued bool, err error) {
	t, err := r.upstream.PrepareUse(ctx, core.UseRequest{Stream: w.stream, Launch: w.name, Uses: w.uses})
	if err != nil {
		return false, err
	}
	crossed := t.Intent().CrossStream
	if err = w.enqueue(ctx, w.stream); core.WasNotEnqueued(err) {
		r.count.ownAborts.Add(1)
		return false, errors.Join(err, r.upstream.AbortUse(ctx, t))
	}
	if crossed {
		r.count.ownCrossings.Add(1)
	}
	r.count.ownLaunches.Add(1)
	return true, errors.Join(err, r.upstream.FinishUse(ctx, t))
}

// ownPatience is how long a caller's intent waits for an access of the guard's.
const ownPatience = time.Second

// prepareAgain opens a caller's intent that the upstream has refused, if the reason will pass: own
// says that the guard may have said no to a block that is live again. An intent that only an access of the guard's
// stands in the way of is tried until that has ended, whether the caller wants
// to wait or not: the caller cannot know of it, and it ends at once, unless a capture
// of the program's keeps its end from being recorded. Then the caller is told after a while.
func (r *Resource) prepareAgain(ctx context.Context, req *core.UseRequest, own bool, err error) (t core.Ticket, _ error) {
	again := func() bool { return own && errors.Is(err, path.ErrDeclined) || !req.Wait && conflictsWithGuard(err) }
	if again() {
		patient, cancel := context.WithTimeout(ctx, ownPatience)
		defer cancel()
		var why error
		_ = deadline.Poll(patient, func() (bool, error) {
			if errors.Is(err, path.ErrDeclined) {
				why = r.unusable(req)
			}
			if why != nil {
				return true, nil //nolint:nilerr // it is told below
			}
			t, err = r.uses.PrepareUse(ctx, *req)
			return !again(), nil
		})
		if why != nil {
			return core.Ticket{}, why
		}
	}
	if err != nil {
		if why := r.unusable(req); own && why != nil { // of several stale uses the guard names the first that it knows
			return core.Ticket{}, why
		}
		return core.Ticket{}, r.refused(err, lateIn(req))
	}
	return t, nil
}

// conflictsWithGuard reports whether what conflicts is an access of the guard's.
func conflictsWithGuard(err error) bool {
	misuse, ok := errors.AsType[*core.StreamMisuseError](err)
	return ok && misuse.Holder != nil && strings.HasPrefix(misuse.Holder.Launch, launchPrefix)
}

// noteCapture counts an access of the guard's that a capture kept off its
// stream.
func (r *Resource) noteCapture(err error) {
	if misuse, ok := errors.AsType[*core.StreamMisuseError](err); ok && misuse.Capturing {
		r.count.captured.Add(1)
	}
}

// synchronously does w where uses are not fenced: behind all work of the
// stream, and done before anything else follows.
func (r *Resource) synchronously(ctx context.Context, w work) error {
	if err := r.cfg.Device.Synchronize(ctx, w.stream); err != nil {
		return err
	}
	err := w.enqueue(ctx, w.stream)
	r.noteCapture(err)
	if core.WasNotEnqueued(err) {
		return err
	}
	return errors.Join(err, r.cfg.Device.Synchronize(ctx, w.stream))
}

// delayedShare is one in how many launches begins with a delay.
const delayedShare = 4

// delay puts a delay on the stream of a launch that was prepared: behind the
// waits that were queued for it, and in front of what the caller will enqueue.
// Work elsewhere that nothing orders behind this launch then overtakes it, as
// it would some day without. A delay that cannot be enqueued is left out.
func (r *Resource) delay(ctx context.Context, stream core.StreamID) {
	if r.cfg.Device == nil || !r.hunting().Delay {
		return
	}
	length := delayOf(r.cfg.Advanced.Hunt, r.count.draws.Add(1))
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
	mean := uint64(cmp.Or(h.Delay, DefaultDelay))
	length, _ := bits.Mul64(draw, 2*mean)
	return time.Duration(max(length, 1))
}
