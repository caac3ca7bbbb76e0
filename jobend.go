package fencepost

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
)

// wait waits until the device has done all that was enqueued through the job
// and its forks, or its context ends. It goes on past errors, and returns the
// first.
func (j *Job) wait() (first error) {
	for _, on := range j.state.streams {
		if err := j.state.waitFor(on); first == nil {
			first = err
		}
	}
	return first
}

// waitFor makes no call if nothing was enqueued since the last wait.
func (s *jobState) waitFor(on *jobStream) error {
	if !on.busy && !on.handed {
		return nil
	}
	if err := s.rt.streams.Synchronize(s.ctx, on.lease.ID()); err != nil {
		return err
	}
	on.busy = false
	return nil
}

func (j *Job) end() error { return j.state.end() }

// end gives everything back, and goes on past errors and the end of the
// context: a client that went away must not cost memory. It does not wait for
// the device: frees are queued behind the work that uses the memory.
func (s *jobState) end() error {
	s.ended.Store(true)
	ctx := context.WithoutCancel(s.ctx) // the spans still belong to the caller
	errs := []error{s.freeAll(ctx)}
	for _, on := range s.streams {
		errs = append(errs, twice(on.lease.Release))
	}
	if s.claim.ID != 0 {
		errs = append(errs, twice(func() error { return s.rt.ReleaseClaim(ctx, s.claim.ID) }))
	}
	return errors.Join(errs...)
}

// also is err, and more if there is any: an error that is alone stays what it
// is.
func also(err, more error) error {
	switch {
	case more == nil:
		return err
	case err == nil:
		return more
	}
	return errors.Join(err, more)
}

// freeAll frees the blocks that were not freed before. It goes by blocks and
// not by slices, because a view that was forgotten keeps a slice's memory.
func (s *jobState) freeAll(ctx context.Context) error {
	var first error
	held := 0
	for _, id := range s.blocks {
		if s.rt.State(id) != core.Live {
			continue
		}
		if err := twice(func() error { _, err := s.rt.Deallocate(ctx, id); return err }); err != nil {
			held++
			if first == nil {
				first = err
			}
		}
	}
	if held == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d blocks of the job %q could not be freed and are held until the runtime ends: %w", held, len(s.blocks), s.tag.OrUntagged(), first)
}

// twice repeats what the driver refused: a refusal has changed nothing, and
// nobody else is going to ask again.
func twice(giveBack func() error) error {
	if giveBack() == nil {
		return nil
	}
	return giveBack()
}
