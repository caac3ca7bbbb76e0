package cuda

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// The driver's special stream handles (CU_STREAM_LEGACY and
// CU_STREAM_PER_THREAD).
const (
	legacyHandle    driver.Stream = 1
	perThreadHandle driver.Stream = 2
)

// Adopt brings a stream of the caller's under an id, so that launches on it
// are fenced like any other. The stream must stay alive until the lease is
// released; after that the runtime does not name it again. Its owner may capture
// a CUDA graph on it, but must not begin while a call of the runtime's names the
// stream, or between the halves of a launch; [Lease.Capture] needs no such care.
//
// Refused with a [core.StreamMisuseError]: the default streams (the legacy one is
// [core.DefaultStream] already, the per-thread one means another stream on
// every thread), a stream that is adopted already, and a stream of the pool's
// own, which would get two ids and two orders. The handle of a stream that was
// given up may be adopted again, whether it names the same stream or one that
// the driver made since.
func (p *StreamPool) Adopt(handle driver.Stream, tag core.Tag) (*Lease, error) {
	if err := needPool("Adopt", p); err != nil {
		return nil, err
	}
	refuse := func(reason string) (*Lease, error) {
		return nil, &core.StreamMisuseError{Op: "Adopt", Reason: reason}
	}
	switch handle {
	case 0, legacyHandle:
		return refuse("the legacy default stream needs no adoption: use core.DefaultStream")
	case perThreadHandle:
		return refuse("the per-thread default stream is another stream on every thread: adopt a stream that you created")
	}
	p.mu.Lock()
	switch {
	case p.closed.Load():
		p.mu.Unlock()
		return nil, fmt.Errorf("adopting a stream: the pool is %w", core.ErrClosed)
	case p.adoptedHandles[handle]:
		p.mu.Unlock()
		return refuse(fmt.Sprintf("stream handle %#x is adopted already", uint64(handle)))
	case p.table.made(handle):
		p.mu.Unlock()
		return refuse(fmt.Sprintf("stream handle %#x is of the pool's own: use the lease that it was acquired under", uint64(handle)))
	}
	p.adoptedHandles[handle] = true
	p.mu.Unlock()
	l := (&Lease{id: nextID(), stream: p.table.add(handle, true), pool: p, tag: tag.OrUntagged(), since: time.Now(), adopted: true}).captureStack(1)
	p.register(l)
	return l, nil
}

// releasePatience is how long a release waits for work that is being enqueued on the stream,
// such as the guard's.
const releasePatience = 100 * time.Millisecond

// giveUp lets go of an adopted stream: its final point is recorded on it, and
// everything that would have been enqueued there is enqueued on the backstop
// behind that point. If no event can be recorded the stream is synchronised.
func (p *StreamPool) giveUp(l *Lease) error {
	s := l.stream
	if err := l.awaitOpen(); err != nil { // the id is off: nothing further can come
		return err
	}
	s.Lock()
	err := s.GiveUp(l.id)
	s.Unlock()
	if errors.Is(err, core.ErrStreamMisuse) { // it captures
		return err
	}
	if err != nil {
		return fmt.Errorf("giving up stream %v: its work could not be fenced: %w", l.id, err)
	}
	p.mu.Lock()
	delete(p.adoptedHandles, s.Handle())
	p.mu.Unlock()
	return nil
}

// awaitOpen waits a moment until no work is being enqueued on the stream and no launch is
// announced there.
func (l *Lease) awaitOpen() error {
	moment, cancel := context.WithTimeout(context.Background(), releasePatience)
	defer cancel()
	if deadline.Poll(moment, func() (bool, error) { return l.stream.Open() == 0, nil }) == nil {
		return nil
	}
	return &core.StreamMisuseError{Op: "Release", Stream: l.id, Reason: "launches are announced on the adopted stream and not finished, or a copy, a recorded use or the guard's own work is still being enqueued: finish or abort the launches, and call Release again"}
}

// forFrees returns the stream on which blocks of s are freed, and the event
// that must be waited for there first, with a reference of the caller's: s
// itself and nil, unless s was given up.
func (p *StreamPool) forFrees(s *stream) (*stream, *fence.Point, error) {
	last := s.RetainFinal()
	if last == nil {
		return s, nil, nil
	}
	backstop, err := p.makeBackstop()
	if err != nil {
		last.Release()
		return nil, nil, err
	}
	return backstop, last, nil
}

// makeBackstop returns the backstop, which the first call makes.
func (p *StreamPool) makeBackstop() (*stream, error) {
	p.backing.Lock()
	defer p.backing.Unlock()
	if s, err := p.madeBackstop(nil); s != nil || err != nil {
		return s, err
	}
	handle, err := p.drv.StreamCreate()
	if err != nil {
		return nil, err
	}
	return p.madeBackstop(p.table.add(handle, false))
}

// madeBackstop returns the backstop, after setting it if s is not nil.
func (p *StreamPool) madeBackstop(s *stream) (*stream, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case s != nil:
		p.backstop = s
	case p.backstop == nil && p.destroyed:
		return nil, fmt.Errorf("freeing a block of a stream that is gone: the stream pool is %w", core.ErrClosed)
	}
	return p.backstop, nil
}

// forget removes a stream that was given up, once its final point is completed
// and no free waits with it.
func (p *StreamPool) forget(s *stream) error {
	if !p.table.mayBeForgotten(s) || s.frees.pendingFrees() > 0 || s.Open() > 0 {
		return nil
	}
	s.Lock() // another reap must not ask an event that this one gives back
	defer s.Unlock()
	if done, err := s.FinalCompleted(); err != nil || !done {
		return err
	}
	if !s.frees.close() {
		return nil
	}
	s.unpin()
	s.DropFinalEvent()
	return p.table.remove(s)
}
