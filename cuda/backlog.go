package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// captureBacklog is the ends of launches that must be recorded on streams which are
// capturing: of launches that were announced before their stream began to capture and
// finished while it did, and of recorded uses. They are recorded when the captures
// have ended: every reap tries. Frees that meet a capture wait in the freeQueue of
// their stream.
type captureBacklog struct {
	// n is how many there are, including those being tried.
	n atomic.Int64
	// retrying is held by the one who tries.
	retrying sync.Mutex

	mu   sync.Mutex
	ends []backlogEnd
}

// backlogEnd is the end of a launch, or of a recorded use, that stays announced.
type backlogEnd struct {
	launch *launch
	// recordedUse: it is the end of a recorded use, and not of a launch.
	recordedUse bool
	// undecided is how often the driver could not say whether the stream captures.
	undecided int
}

// maxUndecided bounds how often the driver is asked whether a stream captures while
// it cannot say: others may be waiting for the end of the launch.
const maxUndecided = 64

func (b *captureBacklog) add(end backlogEnd) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ends = append(b.ends, end)
	b.n.Add(1)
}

// take empties the list. Its caller counts down what is dealt with.
func (b *captureBacklog) take() []backlogEnd {
	b.mu.Lock()
	defer b.mu.Unlock()
	ends := b.ends
	b.ends = nil
	return ends
}

// finishOrBacklog fences a launch. If the stream is capturing the launch stays announced
// and its end goes into the backlog: nothing can be recorded behind it, and a
// synchronisation would invalidate the capture. It does so for a while, too, if
// the driver cannot tell whether the stream captures.
func (r *tracker) finishOrBacklog(end backlogEnd) (backlogged bool, err error) {
	l := end.launch
	switch err = l.on.Recordable(); {
	case err == nil:
		if err = l.point.Finish(&l.Intent); err == nil {
			return false, nil
		}
		return false, r.synchronize(l, err)
	case !errors.Is(err, fence.ErrCapturing):
		if end.undecided++; end.undecided >= maxUndecided { // an event might go into a graph
			return false, r.synchronize(l, err)
		}
	}
	r.backlog.add(end)
	return true, backlogError("FinishUse", l.Stream, err)
}

func backlogError(op string, id core.StreamID, cause error) error {
	if !errors.Is(cause, fence.ErrCapturing) {
		return fence.Detail(cause, "whether the stream is capturing is not known: the work stays announced on its blocks, and a later reap fences it")
	}
	capturing := fmt.Sprintf("stream %v is capturing", id)
	if id == core.DefaultStream {
		capturing = "a stream that synchronises with the default stream is capturing"
	}
	return &core.StreamMisuseError{Op: op, Stream: id,
		Reason: capturing + ", and work was enqueued before: it stays announced on its blocks and is fenced when the capture has ended. Begin captures outside of launches, and record uses before"}
}

// retryBacklog records what is in the backlog, where the capture has ended.
func (r *tracker) retryBacklog() error {
	if r.backlog.n.Load() == 0 {
		return nil
	}
	done, err := r.recordBacklog()
	r.releaseCompleted(done)
	return err
}

// recordBacklog is retryBacklog, but returns what is to be released.
func (r *tracker) recordBacklog() (done *reapBatch, first error) {
	r.backlog.retrying.Lock() // or they could be taken for recorded meanwhile
	defer r.backlog.retrying.Unlock()
	ends := r.backlog.take()
	defer r.backlog.n.Add(-int64(len(ends))) // what goes back into the backlog counts anew
	for _, end := range ends {
		backlogged, err := r.finishOrBacklog(end)
		if !backlogged {
			if !end.recordedUse {
				end.launch.count()
			}
			if end.launch.point.End() {
				done = done.followedBy(r.launchesEnded(end.launch))
			}
			end.launch.leave()
		}
		if !errors.Is(err, core.ErrStreamMisuse) { // the capture goes on
			first = cmp.Or(first, err)
		}
	}
	return done, first
}

// awaitCaptures waits until no free and no end of a launch waits for the end of a
// capture.
func (r *tracker) awaitCaptures(ctx context.Context) error {
	return deadline.Poll(ctx, func() (bool, error) {
		if r.waitingForCaptures() == 0 {
			return true, nil
		}
		return false, r.retryParked()
	})
}

// waitingForCaptures is how many frees and ends of launches wait for the end of a
// capture.
func (r *tracker) waitingForCaptures() int {
	n := int(r.backlog.n.Load())
	for _, s := range r.streams.table.streams() {
		n += s.frees.count(waitsForCapture)
	}
	return n
}

// captures explains a wait that was given up, if captures were the reason; nil
// if not.
func (r *tracker) captures() error {
	var errs []error
	for _, s := range r.streams.table.streams() {
		if s.capturesOverFrees() {
			id := r.streams.table.leaseOf(s)
			errs = append(errs, &core.StreamMisuseError{Op: "Drain", Stream: id,
				Reason: fmt.Sprintf("frees are queued on stream %v, which is capturing, so whether the device has completed them cannot be told: end the capture", id)})
		}
	}
	if n := r.waitingForCaptures(); n > 0 {
		errs = append(errs, &core.StreamMisuseError{Op: "Drain", Reason: fmt.Sprintf("%d frees and ends of launches wait for the end of captures: end them", n)})
	}
	return errors.Join(errs...)
}

// capturesOverFrees reports whether s is known to capture with frees queued. It
// does not wait for a goroutine that is busy with s, and names no stream that was given up.
func (s *stream) capturesOverFrees() bool {
	if !s.TryLock() {
		return false
	}
	defer s.Unlock()
	if s.frees.pendingFrees() == 0 && (s.arena == nil || s.arena.isCompleted()) {
		return false
	}
	if s.IsGivenUp() {
		return false
	}
	return errors.Is(s.Uncaptured(), fence.ErrCapturing)
}

// A use is recorded after its work was enqueued. If the stream has begun to
// capture since, no event can be recorded, and the use must not be lost: what
// comes next on the block would not be ordered after it. So it is announced like
// a launch, which keeps conflicting work and the free away, and the reap that
// finds the capture ended records it.

// backlogUse announces the use if its stream is capturing, or if that is not known.
// The caller has entered the stream. If the use cannot be announced either, the
// block is poisoned.
func (r *tracker) backlogUse(s *stream, id core.BlockID, lease core.StreamID) (backlogged bool, err error) {
	s.Lock() // what it says of the runtime's captures is exact
	cause := s.Recordable()
	s.Unlock()
	if cause == nil {
		return false, nil
	}
	l := s.enterLaunch() // until it is fenced
	err = l.Open(r.streams.table.ordinal, &core.UseRequest{Stream: lease, Launch: "recorded use", Uses: []core.Use{{Block: id, Access: core.ReadWrite}}})
	if err == nil {
		err = r.announceUse(l)
	}
	if err != nil {
		l.leave()
		return true, err
	}
	r.backlog.add(backlogEnd{launch: l, recordedUse: true})
	return true, backlogError("RecordUse", lease, cause)
}

// announceUse announces the only use of l on its block.
func (r *tracker) announceUse(l *launch) error {
	in, u, s := &l.Intent, &l.Uses[0], l.on
	p, pointErr := s.AnnounceRecordedUse(in)
	b, err := r.streams.table.find("RecordUse", u.Block, in.Stream)
	if err != nil { // freed meanwhile
		if p != nil {
			p.Release()
		}
		return err
	}
	defer b.mu.Unlock()
	if pointErr != nil {
		s.books.Fails.Add(1)
		r.streams.table.poison(b)
		return fence.Detail(pointErr, "the use could not be fenced: its block is poisoned and can be neither used nor reused until the device is reset")
	}
	l.point, l.blocks, u.Tag = p, append(l.blocks, b), b.core.Tag
	b.history.AnnounceUndeclared(p, u.Access)
	return nil
}
