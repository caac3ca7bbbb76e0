package cuda

import (
	"cmp"
	"context"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// unmarked are the streams on which work was enqueued that no event of its own
// stands behind, for the end of who enqueued it.
type unmarked struct {
	mu      sync.Mutex
	streams map[*stream]struct{}
}

func (u *unmarked) note(s *stream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.streams == nil {
		u.streams = map[*stream]struct{}{}
	}
	u.streams[s] = struct{}{}
}

// wait waits until the device has done all of it, or ctx ends. What is enqueued
// meanwhile does not wait, and is left to the next call. It returns the first
// error.
func (u *unmarked) wait(ctx context.Context) error {
	u.mu.Lock()
	streams := u.streams
	u.streams = nil
	u.mu.Unlock()
	var first error
	for s := range streams {
		if err := s.waitCompleted(ctx); err != nil {
			first = cmp.Or(first, err)
			u.note(s)
		}
	}
	return first
}

// waitCompleted waits until the device has done what is enqueued now, or ctx ends. A
// stream that was given up is not named again: its final point is behind it all.
func (s *stream) waitCompleted(ctx context.Context) error {
	e, err := s.finalOrHere()
	if err != nil {
		return err
	}
	defer e.Release()
	return poll(ctx, func() (bool, error) { return s.QueryCompleted(e) })
}

func (s *stream) finalOrHere() (*fence.Point, error) {
	s.Lock()
	defer s.Unlock()
	if !s.IsGivenUp() {
		if err := s.RefuseCaptured("Close", core.DefaultStream); err != nil {
			return nil, err
		}
	}
	return s.FinalOrRecord(core.DefaultStream)
}
