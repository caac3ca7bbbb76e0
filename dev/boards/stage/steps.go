package main

import (
	"context"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

// steps are what a scene does one after the other. After one that failed, which
// err keeps, the others do nothing. They are for one goroutine.
type steps struct {
	*player
	err error
}

// try takes a step.
func (s *steps) try(do func() error) {
	if s.err == nil {
		s.err = do()
	}
}

// get takes a step that has a result.
func get[T any](s *steps, do func() (T, error)) (result T) {
	s.try(func() (err error) { result, err = do(); return err })
	return result
}

// loop takes steps again and again until the scene ends. Their errors are what a
// scene may be about.
func (s *steps) loop(pause time.Duration, do func(*steps)) {
	if s.err != nil {
		return
	}
	s.loops.Go(func() {
		for s.ctx.Err() == nil {
			do(&steps{player: s.player})
			select {
			case <-s.ctx.Done():
			case <-time.After(pause):
			}
		}
	})
}

// lease takes a stream that the scene keeps until its end.
func (s *steps) lease(tag core.Tag) *cuda.Lease {
	return s.keep(func() (*cuda.Lease, error) { return s.rt.Streams().Acquire(s.ctx, tag) })
}

func (s *steps) keep(take func() (*cuda.Lease, error)) *cuda.Lease {
	on := get(s, take)
	if on != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.kept = append(s.kept, on)
	}
	return on
}

func (s *steps) allocate(on *cuda.Lease, tag core.Tag, bytes uint64) core.Block {
	return s.request(on, core.Request{Bytes: bytes, Tag: tag})
}

func (s *steps) request(on *cuda.Lease, r core.Request) core.Block {
	return get(s, func() (core.Block, error) { r.Stream = on.ID(); return s.rt.Allocate(s.ctx, r) })
}

// hold allocates on a stream of its own.
func (s *steps) hold(tag core.Tag, bytes uint64) (*cuda.Lease, core.Block) {
	on := s.lease(tag)
	return on, s.allocate(on, tag, bytes)
}

func (s *steps) free(b core.Block) {
	s.try(func() error { _, err := s.rt.Deallocate(s.ctx, b.ID); return err })
}

func (s *steps) launch(on *cuda.Lease, b core.Block, access core.Access, do func() error) {
	s.named("stage."+s.scene.name, on, b, access, do)
}

func (s *steps) named(name string, on *cuda.Lease, b core.Block, access core.Access, do func() error) {
	s.try(func() error {
		return s.rt.LaunchNamed(s.ctx, name, on.ID(), []core.Use{{Block: b.ID, Access: access}}, func(context.Context) error { return do() })
	})
}

func (s *steps) fill(on *cuda.Lease, b core.Block) {
	s.launch(on, b, core.Write, func() error { return s.rt.Driver().MemsetAsync(b.ID.Ptr, 7, 64, on.Handle()) })
}

// prepare begins a launch that FinishUse ends.
func (s *steps) prepare(on *cuda.Lease, b core.Block, access core.Access) core.Ticket {
	return get(s, func() (core.Ticket, error) {
		return s.rt.Core().PrepareUse(s.ctx, core.UseRequest{Stream: on.ID(), Uses: []core.Use{{Block: b.ID, Access: access}}})
	})
}

// once allocates, launches a fill, and frees.
func (s *steps) once(on *cuda.Lease, tag core.Tag, bytes uint64) {
	b := s.allocate(on, tag, bytes)
	s.fill(on, b)
	s.free(b)
}

// stall holds a stream back until release is called.
func (s *steps) stall(on *cuda.Lease) (release func()) {
	if release = get(s, func() (func(), error) { return s.device.Hold(on.Handle()) }); release == nil {
		return func() {}
	}
	return release
}
