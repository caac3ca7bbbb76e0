package main

import (
	"context"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda"
)

// few is how many streams the scenes have that run out of them.
const few = 3

func fewStreams(_ *player, cfg *fencepost.Config) { cfg.Streams = few }

func orderScenes() []scene {
	return []scene{
		{name: "heldback", act: actHeldBack},
		{name: "stuck", idle: true, act: actHeldBack},
		{name: "late", act: actLate},
		{name: "exhaust", configure: fewStreams, act: actExhaust},
		{name: "queue", configure: fewStreams, act: actQueue},
		{name: "adopt", act: actAdopt},
	}
}

// actHeldBack frees behind work that does not end.
func actHeldBack(ctx context.Context, p *player) error {
	on, b, err := p.hold(ctx, "heldback", 32*mib)
	if err != nil {
		return err
	}
	if _, err := p.device.Hold(on.Handle()); err != nil {
		return err
	}
	return p.free(ctx, b)
}

// actLate frees behind work that takes a while.
func actLate(ctx context.Context, p *player) error {
	on, err := p.lease(ctx, "late")
	if err != nil {
		return err
	}
	for range 8 { // most frees are late, so that the median is
		p.loop(ctx, quick, func() error { return p.late(ctx, on) })
	}
	return nil
}

func (p *player) late(ctx context.Context, on *cuda.Lease) error {
	release, err := p.device.Hold(on.Handle())
	if err != nil {
		return err
	}
	defer release()
	for range 8 {
		b, err := p.allocate(ctx, on, "late", 4<<10)
		if err != nil {
			return err
		}
		if err := p.free(ctx, b); err != nil {
			return err
		}
	}
	time.Sleep(400 * time.Millisecond)
	return nil
}

// actExhaust leases all that are left, so that one caller waits and others are refused.
func actExhaust(ctx context.Context, p *player) error {
	for range few - 1 { // the base work has one
		if _, err := p.lease(ctx, "greedy"); err != nil {
			return err
		}
	}
	p.loops.Go(func() { _, _ = p.lease(ctx, "waiting") })
	p.loop(ctx, beat, func() error { _, err := p.rt.Streams().TryAcquire(ctx, "refused"); return err })
	return nil
}

// actQueue has more callers than streams, each of whom keeps one for a while.
func actQueue(ctx context.Context, p *player) error {
	for range 2 * few {
		p.loop(ctx, quick, func() error {
			on, err := p.rt.Streams().Acquire(ctx, "turn")
			if err != nil {
				return err
			}
			time.Sleep(beat)
			return on.Release()
		})
	}
	return nil
}

func actAdopt(_ context.Context, p *player) error {
	handle, err := p.device.StreamCreate()
	if err != nil {
		return err
	}
	_, err = p.keep(p.rt.Streams().Adopt(handle, "callers"))
	return err
}
