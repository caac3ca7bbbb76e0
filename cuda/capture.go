package cuda

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// unlessCapturing is err, or nil if that is just a capture under way.
func unlessCapturing(err error) error {
	if errors.Is(err, fence.ErrCapturing) {
		return nil
	}
	return err
}

// enterUncaptured is enter for work that must not go into a graph: until the
// caller leaves, no capture of the runtime's begins on the stream.
func (t *streamTable) enterUncaptured(op string, id core.StreamID) (*stream, error) {
	s, err := t.enter(op, id)
	if err != nil {
		return nil, err
	}
	if err := s.RefuseCaptured(op, id); err != nil {
		s.Leave()
		return nil, err
	}
	return s, nil
}

// mayRelease refuses to give back a stream that is capturing: the next taker's
// work would go into the graph, or what it is told of it be wrong. An adopted
// stream with launches open is refused as well, and again when its id is off.
// It takes the stream's lock only to end a capture that could not be ended: a
// capture that begins meanwhile sees that the lease is released, or is seen
// here.
func (l *Lease) mayRelease() error {
	s := l.stream
	if l.adopted && s.Open() > 0 {
		return stillOpen(l.id)
	}
	if s.stuck.Load() {
		if err := l.endStuck(); err != nil {
			return err
		}
	}
	capturing := s.Capturing()
	if !capturing { // it may have begun on the handle
		capturing, _ = s.QueryCapturing() // who does not look at the error of a Release must not lose the stream
	}
	if capturing {
		return &core.StreamMisuseError{Op: "Release", Stream: l.id, Reason: fmt.Sprintf("stream %v is capturing: end the capture first. One that the driver would not end is ended by releasing the lease that it began on", l.id)}
	}
	return nil
}

func (l *Lease) endStuck() error {
	l.stream.Lock()
	defer l.stream.Unlock()
	return l.stream.endStuck(l.pool)
}
