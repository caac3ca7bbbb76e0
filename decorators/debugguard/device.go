package debugguard

import (
	"context"
	"errors"
	"runtime"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
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
	// enqueue does it on the stream it is given, and says whether any of it
	// was enqueued.
	enqueue func(ctx context.Context, stream core.StreamID) (enqueued bool, err error)
}

// device does w in the order of all other uses of its blocks. Nothing waits
// for the device, except over an upstream without use tracking.
func (r *Resource) device(ctx context.Context, w work) error {
	if !r.tracked {
		return r.synchronously(ctx, w)
	}
	t, stream, err := r.prepareOwn(ctx, w)
	if err != nil {
		return err
	}
	crossed := t.Intent().CrossStream
	enqueued, err := w.enqueue(ctx, stream)
	if !enqueued {
		r.count.ownAborts.Add(1)
		return errors.Join(err, r.upstream.AbortUse(ctx, t))
	}
	if crossed {
		r.count.ownCrossings.Add(1)
	}
	r.count.ownLaunches.Add(1)
	return errors.Join(err, r.upstream.FinishUse(ctx, t))
}

// prepareOwn opens the intent of w. A block may outlive the lease of its
// stream, on which nothing can be launched any more, and its stream may
// capture; the default stream takes its place then, behind the same fences.
func (r *Resource) prepareOwn(ctx context.Context, w work) (core.Ticket, core.StreamID, error) {
	t, err := r.upstream.PrepareUse(ctx, core.UseRequest{Stream: w.stream, Launch: w.name, Uses: w.uses})
	r.noteCapture(err)
	if err == nil || w.stream == core.DefaultStream || !errors.Is(err, core.ErrStreamMisuse) {
		return t, w.stream, err
	}
	t, err = r.upstream.PrepareUse(ctx, core.UseRequest{Stream: core.DefaultStream, Launch: w.name, Uses: w.uses})
	return t, core.DefaultStream, err
}

// prepare opens a caller's intent. One that only an access of the guard's
// stands in the way of is tried until that has ended, whether the caller wants
// to wait or not: the caller cannot know of it, and it ends at once.
func (r *Resource) prepare(ctx context.Context, req core.UseRequest) (core.Ticket, error) {
	t, err := r.upstream.PrepareUse(ctx, req)
	for err != nil && !req.Wait && heldByGuard(err) && ctx.Err() == nil {
		runtime.Gosched()
		t, err = r.upstream.PrepareUse(ctx, req)
	}
	return t, err
}

// heldByGuard reports whether what conflicts is an access of the guard's.
func heldByGuard(err error) bool {
	var misuse *core.StreamMisuseError
	return errors.As(err, &misuse) && misuse.Holder != nil && strings.HasPrefix(misuse.Holder.Launch, launchPrefix)
}

// noteCapture counts an access of the guard's that a capture kept off its
// stream.
func (r *Resource) noteCapture(err error) {
	if err == nil {
		return
	}
	if misuse, ok := errors.AsType[*core.StreamMisuseError](err); ok && misuse.Capturing {
		r.count.captured.Add(1)
	}
}

// synchronously does w where nobody fences uses: behind all work of the
// stream, and done before anything else follows.
func (r *Resource) synchronously(ctx context.Context, w work) error {
	if err := r.cfg.Device.Synchronize(ctx, w.stream); err != nil {
		return err
	}
	enqueued, err := w.enqueue(ctx, w.stream)
	r.noteCapture(err)
	if !enqueued {
		return err
	}
	return errors.Join(err, r.cfg.Device.Synchronize(ctx, w.stream))
}
