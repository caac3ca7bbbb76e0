package cuda

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Capture records what record enqueues on the stream that it is given, and does
// not run it: the graph that comes of it does, as often as it is launched.
// uses are the blocks that the work touches, as for a launch; each launch of the
// graph is fenced for them, and refused if one was freed. name is that of the
// launches in traces, logs and findings.
//
// record enqueues raw, with Kernel.Enqueue or the driver: the stream is refused
// for launches, allocations, copies and synchronisations of the runtime's until
// Capture returns, with a [core.StreamMisuseError] that leaves the capture
// intact. Blocks may be freed meanwhile: those that were allocated on the stream
// when the capture has ended. record may be called on any thread and use
// several; streams that it draws in, by an event and a wait, are named as forks
// and kept out of in the same way. Host memory that is copied from or to must
// stay in place and untouched for as long as the graph is launched.
//
// An error of record is returned and there is no graph; after a panic there is
// none either. Other errors are [core.StreamMisuseError] for a lease that is
// released, capturing, or has a launch announced, [core.UseAfterFreeError] for a
// block that is not live, and [core.DriverError], among them those of a capture
// that record has invalidated. It blocks as record does, and while the
// driver builds the graph.
func (l *Lease) Capture(ctx context.Context, name string, uses []core.Use, record func(driver.Stream) error, forks ...*Lease) (*Graph, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("Capture: %w", err)
	}
	if err := l.checkCaptured(uses); err != nil {
		return nil, err
	}
	if err := l.beginCapture(forks); err != nil {
		return nil, err
	}
	returned := false
	defer func() {
		if !returned { // a panic goes on to the caller
			exec, _ := l.endCapture()
			l.pool.discard(exec)
		}
	}()
	recordErr := record(l.Handle())
	returned = true
	exec, err := l.endCapture()
	if err := errors.Join(recordErr, err); err != nil {
		l.pool.discard(exec)
		return nil, err
	}
	return newGraph(l.pool.drv, name, uses, exec), nil
}

// checkCaptured refuses uses for which no launch of the graph could be fenced.
func (l *Lease) checkCaptured(uses []core.Use) error {
	for _, u := range uses {
		if u.Block.Generation == core.NoBytes {
			continue
		}
		if !u.Access.Valid() {
			return &core.InvalidRequestError{Op: "Capture", Field: "Access", Reason: fmt.Sprintf("%v of block %v: say Read, Write or ReadWrite", u.Access, u.Block)}
		}
		b := l.pool.table.lookup(u.Block)
		if b == nil {
			return &core.UseAfterFreeError{Op: "Capture", Generation: u.Block.Generation, Block: u.Block, State: core.Freed}
		}
		b.mu.Lock()
		err := b.check("Capture", u.Block, l.id)
		b.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// beginCapture takes the streams out of the runtime's hands and begins.
func (l *Lease) beginCapture(forks []*Lease) error {
	var entered []*stream
	for _, each := range append([]*Lease{l}, forks...) {
		if err := each.enterCapture(l.pool); err != nil {
			leaveCapture(entered)
			return err
		}
		entered = append(entered, each.stream)
	}
	s := l.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.drv.StreamBeginCapture(s.handle); err != nil {
		leaveCapture(entered)
		return err
	}
	s.captured = entered
	return nil
}

func leaveCapture(streams []*stream) {
	for _, s := range streams {
		s.capturing.Store(false)
	}
}

// enterCapture makes everybody else keep out of the stream. What is late is
// recorded, so that nothing of the runtime's is left to enqueue.
func (l *Lease) enterCapture(pool *StreamPool) error {
	s := l.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	refuse := func(reason string) error {
		return &core.StreamMisuseError{Op: "Capture", Stream: l.id, Reason: fmt.Sprintf("stream %v %s", l.id, reason)}
	}
	if l.pool != pool {
		return refuse("is of another pool: the streams of one capture belong to one device")
	}
	if l.released.Load() {
		return refuse("is not leased any more: capture under a lease that is held")
	}
	if err := s.endStuck(pool); err != nil {
		return err
	}
	if s.capturing.Load() {
		return refuse("is capturing already")
	}
	if capturing, err := s.askCapturing(); err != nil {
		return err
	} else if capturing {
		return refuse("is capturing already, and not through Lease.Capture: end that capture")
	}
	if err := s.flush(); err != nil {
		return err
	}
	s.capturing.Store(true)
	if s.open.Load() > 0 {
		s.capturing.Store(false)
		return refuse("has launches announced and not finished: finish or abort them before a capture")
	}
	return nil
}

// endCapture ends the capture of the lease.
func (l *Lease) endCapture() (driver.Graph, error) {
	l.stream.mu.Lock()
	defer l.stream.mu.Unlock()
	exec, err := l.stream.endCapture(l.pool)
	if err != nil {
		err = detail(err, "what was captured cannot be launched: something that cannot be captured was asked for, or a stream that was drawn in is not waited for")
	}
	return exec, err
}

// endCapture ends the capture that began on s, at the second try if need be. One
// that cannot be ended stays, and the stream with it, until Release or another
// Capture has ended it; s.mu must be held.
func (s *stream) endCapture(pool *StreamPool) (driver.Graph, error) {
	exec, err := s.drv.StreamEndCapture(s.handle)
	if err != nil && s.mayCapture() {
		if again, againErr := s.drv.StreamEndCapture(s.handle); againErr == nil {
			pool.discard(again)
		}
		if s.stuck = s.mayCapture(); s.stuck {
			return 0, err
		}
	}
	leaveCapture(s.captured)
	s.captured, s.stuck = nil, false
	return exec, err
}

// mayCapture reports whether the driver's capture may not have ended.
func (s *stream) mayCapture() bool {
	capturing, err := s.askCapturing()
	return capturing || err != nil && !errors.Is(err, core.ErrSticky)
}

// endStuck ends a capture that could not be ended before; s.mu must be held.
func (s *stream) endStuck(pool *StreamPool) error {
	if !s.stuck {
		return nil
	}
	exec, err := s.endCapture(pool)
	pool.discard(exec)
	if s.stuck {
		return err
	}
	return nil // what came of it was told then
}
