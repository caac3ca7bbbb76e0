package main

import (
	"context"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

// lease takes a stream that the scene keeps.
func (p *player) lease(ctx context.Context, tag core.Tag) (*cuda.Lease, error) {
	return p.keep(p.rt.Streams().Acquire(ctx, tag))
}

// keep notes a lease, to be given back at the end.
func (p *player) keep(on *cuda.Lease, err error) (*cuda.Lease, error) {
	if err == nil {
		p.mu.Lock()
		p.kept = append(p.kept, on)
		p.mu.Unlock()
	}
	return on, err
}

// loop calls do again and again until the scene ends. Its errors are what a
// scene may be about.
func (p *player) loop(ctx context.Context, pause time.Duration, do func() error) {
	p.loops.Go(func() {
		for ctx.Err() == nil {
			_ = do()
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
}

// once allocates, launches a fill, and frees.
func (p *player) once(ctx context.Context, on *cuda.Lease, tag core.Tag, bytes uint64) error {
	b, err := p.allocate(ctx, on, tag, bytes)
	if err != nil {
		return err
	}
	if err := p.fill(ctx, on, b); err != nil {
		return err
	}
	return p.free(ctx, b)
}

func (p *player) allocate(ctx context.Context, on *cuda.Lease, tag core.Tag, bytes uint64) (core.Block, error) {
	return p.rt.Allocate(ctx, core.Request{Bytes: bytes, Stream: on.ID(), Tag: tag})
}

func (p *player) fill(ctx context.Context, on *cuda.Lease, b core.Block) error {
	return p.launch(ctx, on, b, core.Write, func(context.Context) error {
		return p.rt.Driver().MemsetAsync(b.ID.Ptr, 7, 64, on.Handle())
	})
}

func (p *player) launch(ctx context.Context, on *cuda.Lease, b core.Block, access core.Access, do func(context.Context) error) error {
	return p.rt.LaunchNamed(ctx, "stage."+p.scene.name, on.ID(), []core.Use{{Block: b.ID, Access: access}}, do)
}

func (p *player) free(ctx context.Context, b core.Block) error {
	_, err := p.rt.Deallocate(ctx, b.ID)
	return err
}

// close ends the scene. What scenes leave behind is what they are about, so
// the errors are not.
func (p *player) close(ctx context.Context) {
	p.stop()
	close(p.unblock)
	p.driver.calm()
	p.faults.Clear()
	p.loops.Wait()
	for _, on := range p.kept {
		_ = on.Release()
	}
	_, _ = p.rt.Close(ctx)
	if p.sink != nil {
		_ = p.sink.Close(ctx)
	}
	if p.tracer != nil {
		_ = p.tracer.Shutdown(ctx)
	}
	_ = p.device.Close()
}
