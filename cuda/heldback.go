package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// heldBack is what must be enqueued on streams that are capturing, and is when
// they are not: every reap tries.
type heldBack struct {
	// n is how much there is, what is being tried included.
	n atomic.Int64

	mu sync.Mutex
	// frees are of retired blocks, ends of launches that were announced before
	// their stream began to capture and finished while it did, and of recorded
	// uses.
	frees []*block
	ends  []heldEnd
}

// heldEnd is the end of a launch, or of a recorded use, that stays announced.
type heldEnd struct {
	in *core.Intent
	// undecided is how often the driver could not say whether the stream captures.
	undecided int
}

// maxUndecided bounds how often the driver is asked whether a stream captures while
// it cannot say: others may be waiting for the end of the launch.
const maxUndecided = 64

func (h *heldBack) free(b *block) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.frees = append(h.frees, b)
	h.n.Add(1)
}

func (h *heldBack) end(e heldEnd) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends = append(h.ends, e)
	h.n.Add(1)
}

// take empties the lists. Whoever takes counts down what is dealt with.
func (h *heldBack) take() ([]*block, []heldEnd) {
	h.mu.Lock()
	defer h.mu.Unlock()
	frees, ends := h.frees, h.ends
	h.frees, h.ends = nil, nil
	return frees, ends
}

// freeOrHold queues a free, or keeps it if its stream is capturing.
func (r *AsyncResource) freeOrHold(b *block, p patience) error {
	err := r.free(b, p)
	if errors.Is(err, errCapturing) {
		r.held.free(b)
		return nil
	}
	return err
}

// finishOrHold is finish. If the stream is capturing the launch stays announced:
// nothing can be recorded behind it, and a synchronisation would invalidate the
// capture. It does so for a while, too, if nobody can tell.
func (r *AsyncResource) finishOrHold(h heldEnd) (held bool, err error) {
	e := h.in.Handle.(*event)
	s := e.stream
	switch err = s.recordable(); {
	case err == nil:
		return false, r.finish(s, h.in, e)
	case !errors.Is(err, errCapturing):
		if h.undecided++; h.undecided >= maxUndecided { // an event might go into a graph
			return false, r.finishUnrecorded(s, h.in, e, err)
		}
	}
	r.held.end(h)
	return true, heldError("FinishUse", e.lease, err)
}

// recordable returns nil if an event may be recorded on s, as well as can be
// told: errCapturing if not, and a driver's error if it cannot be told even at
// the second try. A stream that the driver does not know, or of a device that is
// lost, captures nothing: the record will say what is wrong.
func (s *stream) recordable() error {
	err := s.uncaptured()
	if err != nil && !errors.Is(err, errCapturing) {
		err = s.uncaptured() // others may be waiting for the end of the launch
	}
	if capturesNothing(err) {
		return nil
	}
	return err
}

func capturesNothing(err error) bool {
	var d *core.DriverError
	if !errors.As(err, &d) {
		return false
	}
	switch d.Code {
	case driver.InvalidHandle, driver.InvalidContext, driver.InvalidValue, driver.Deinitialized:
		return true
	}
	return d.Sticky
}

func heldError(op string, id core.StreamID, cause error) error {
	if !errors.Is(cause, errCapturing) {
		return detail(cause, "nobody knows whether the stream is capturing: the work stays announced on its blocks, and a later reap fences it")
	}
	capturing := fmt.Sprintf("stream %v is capturing", id)
	if id == core.DefaultStream {
		capturing = "a stream that synchronises with the default stream is capturing"
	}
	return &core.StreamMisuseError{Op: op, Stream: id,
		Reason: capturing + ", and work was enqueued before: it stays announced on its blocks and is fenced when the capture has ended. Begin captures outside of launches, and record uses before"}
}

// retryHeld does what was held back, where the capture has ended; r.retrying
// must be held.
func (r *AsyncResource) retryHeld() error {
	if r.held.n.Load() == 0 {
		return nil
	}
	frees, ends := r.held.take()
	defer r.held.n.Add(-int64(len(frees) + len(ends))) // what is held back again counts anew
	var first error
	for _, h := range ends {
		held, err := r.finishOrHold(h)
		if !held {
			r.endHeld(h.in)
		}
		if !errors.Is(err, core.ErrStreamMisuse) { // the capture goes on
			first = cmp.Or(first, err)
		}
	}
	for _, b := range frees {
		if err := r.freeOrHold(b, patient); err != nil {
			r.retryFree(b)
			first = cmp.Or(first, err)
		}
	}
	return first
}

// drainHeld waits until nothing is held back.
func (r *AsyncResource) drainHeld(ctx context.Context) error {
	return poll(ctx, func() (bool, error) {
		if r.held.n.Load() == 0 {
			return true, nil
		}
		return false, r.retryUnfreed()
	})
}

// captures explains a wait that was given up, if captures were the reason; nil
// if not.
func (r *AsyncResource) captures() error {
	var errs []error
	for _, s := range r.streams.table.streams() {
		if s.capturesOverFrees() {
			id := s.table.leaseOf(s)
			errs = append(errs, &core.StreamMisuseError{Op: "Drain", Stream: id,
				Reason: fmt.Sprintf("frees are queued on stream %v, which is capturing, and nobody can tell whether the device has completed them: end the capture", id)})
		}
	}
	if n := r.held.n.Load(); n > 0 {
		errs = append(errs, &core.StreamMisuseError{Op: "Drain", Reason: fmt.Sprintf("%d frees and ends of launches wait for the end of captures: end them", n)})
	}
	return errors.Join(errs...)
}

// capturesOverFrees reports whether s is known to capture with frees queued. It
// does not wait for whoever is busy with s, and names no stream that was given up.
func (s *stream) capturesOverFrees() bool {
	if s.queued.Load() == 0 || !s.mu.TryLock() {
		return false
	}
	defer s.mu.Unlock()
	if s.last.Load() != nil {
		return false
	}
	capturing, _ := s.isCapturing()
	return capturing
}
