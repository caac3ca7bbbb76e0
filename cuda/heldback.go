package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// heldBack is what must be enqueued on streams that are capturing, and is when
// they are not: every reap tries.
type heldBack struct {
	// n is how much there is, what is being tried included.
	n atomic.Int64

	mu sync.Mutex
	// frees are of retired blocks, launches were announced before their stream
	// began to capture and finished while it did.
	frees    []*block
	launches []*core.Intent
}

func (h *heldBack) free(b *block) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.frees = append(h.frees, b)
	h.n.Add(1)
}

func (h *heldBack) launch(in *core.Intent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.launches = append(h.launches, in)
	h.n.Add(1)
}

// take empties the lists. Whoever takes counts down what is dealt with.
func (h *heldBack) take() ([]*block, []*core.Intent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	frees, launches := h.frees, h.launches
	h.frees, h.launches = nil, nil
	return frees, launches
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
// capture.
func (r *AsyncResource) finishOrHold(s *stream, in *core.Intent, e *event) (held bool, err error) {
	err = s.uncaptured()
	if err != nil && !errors.Is(err, errCapturing) {
		err = s.uncaptured() // others may be waiting for the end of the launch
	}
	if err == nil || errors.Is(err, core.ErrSticky) { // a lost device says so again, and is poisoned
		return false, r.finish(s, in, e)
	}
	id := e.lease
	r.held.launch(in)
	return true, finishHeld(id, err)
}

func finishHeld(id core.StreamID, cause error) error {
	if !errors.Is(cause, errCapturing) {
		return detail(cause, "nobody knows whether the stream is capturing: the launch stays announced, and a later reap fences it")
	}
	return &core.StreamMisuseError{Op: "FinishUse", Stream: id,
		Reason: fmt.Sprintf("stream %v has begun to capture since the launch was prepared: the launch stays announced and is fenced when the capture has ended. "+
			"Begin captures outside of launches", id)}
}

// retryHeld does what was held back, where the capture has ended; r.retrying
// must be held.
func (r *AsyncResource) retryHeld() error {
	if r.held.n.Load() == 0 {
		return nil
	}
	frees, launches := r.held.take()
	defer r.held.n.Add(-int64(len(frees) + len(launches))) // what is held back again counts anew
	var first error
	for _, in := range launches {
		e := in.Handle.(*event)
		held, err := r.finishOrHold(e.stream, in, e)
		if !held {
			r.launched(in)
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
		if s.last.Load() != nil || s.queued.Load() == 0 {
			continue
		}
		if capturing, _ := s.isCapturing(); capturing {
			errs = append(errs, &core.StreamMisuseError{Op: "Drain", Reason: "frees are queued on a stream that is capturing, and nobody can tell whether the device has passed them: end the capture"})
		}
	}
	if n := r.held.n.Load(); n > 0 {
		errs = append(errs, &core.StreamMisuseError{Op: "Drain", Reason: fmt.Sprintf("%d frees and ends of launches wait for the end of captures: end them", n)})
	}
	return errors.Join(errs...)
}
