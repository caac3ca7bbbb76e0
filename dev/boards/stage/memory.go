package main

import (
	"context"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// limit is the budget of scenes that come near it.
const limit = 16 * mib

func small(_ *player, cfg *fencepost.Config) { cfg.Budget = limit }

func smallTraced(p *player, cfg *fencepost.Config) {
	small(p, cfg)
	traced(p, cfg)
}

func ownPool(_ *player, cfg *fencepost.Config) {
	cfg.Resource, cfg.Guard, cfg.Pool.Limit = fencepost.Pool, "off", 128*mib
}

func memoryScenes() []scene {
	return []scene{
		{name: "hold", act: actHold},
		{name: "leak", idle: true, act: actLeak},
		{name: "slack", act: actSlack},
		{name: "ownpool", configure: ownPool, act: actOwnPool},
		{name: "reserve", act: func(ctx context.Context, p *player) error {
			_, err := p.rt.Reserve(ctx, 32*mib, "reserved")
			return err
		}},
		{name: "limit", configure: small, act: func(_ context.Context, p *player) error { p.rt.Budget().SetLimit(limit + 64*mib); return nil }},
		{name: "refuse", configure: smallTraced, act: actRefuse},
		{name: "oom", configure: traced, act: actOutOfMemory},
		{name: "foreign", act: func(_ context.Context, p *player) error { _, err := p.device.MemAlloc(64 * mib); return err }},
		{name: "drift", act: actDrift},
		{name: "deaf", act: func(_ context.Context, p *player) error { p.driver.deaf.Store(true); return nil }},
	}
}

// hold allocates on a stream of its own and keeps it.
func (p *player) hold(ctx context.Context, tag core.Tag, bytes uint64) (on *cuda.Lease, b core.Block, err error) {
	if on, err = p.lease(ctx, tag); err != nil {
		return on, b, err
	}
	b, err = p.allocate(ctx, on, tag, bytes)
	return on, b, err
}

func actHold(ctx context.Context, p *player) error {
	_, _, err := p.hold(ctx, "hold", 64*mib)
	return err
}

// actLeak allocates again and again, and launches nothing. What the device has
// lasts for five minutes: an alert needs growth that goes on, and a busy machine
// has the scrapes late.
func actLeak(ctx context.Context, p *player) error {
	on, err := p.lease(ctx, "leaky")
	if err != nil {
		return err
	}
	p.loop(ctx, 300*time.Millisecond, func() error { _, err := p.allocate(ctx, on, "leaky", mib/4); return err })
	return nil
}

// actSlack is a burst: the pool keeps what was needed once.
func actSlack(ctx context.Context, p *player) error {
	_, b, err := p.hold(ctx, "burst", 64*mib)
	if err != nil {
		return err
	}
	return p.free(ctx, b)
}

// actOwnPool leaves half of each of 32 pages free, and has the pool grow and trim again and again.
func actOwnPool(ctx context.Context, p *player) error {
	on, err := p.lease(ctx, "fragments")
	if err != nil {
		return err
	}
	var blocks [64]core.Block
	for i := range blocks {
		if blocks[i], err = p.allocate(ctx, on, "fragments", mib); err != nil {
			return err
		}
	}
	for i := 0; i < len(blocks); i += 2 {
		if err := p.free(ctx, blocks[i]); err != nil {
			return err
		}
	}
	p.loop(ctx, beat, func() error {
		if err := p.once(ctx, on, "burst", 16*mib); err != nil {
			return err
		}
		return p.rt.TrimPool(ctx, 0)
	})
	return nil
}

func actRefuse(ctx context.Context, p *player) error {
	on, _, err := p.hold(ctx, "greedy", limit/2)
	if err != nil {
		return err
	}
	p.loop(ctx, beat, func() error { return p.once(ctx, on, "greedy", limit) })
	return nil
}

// actOutOfMemory has the driver refuse what the budget admits.
func actOutOfMemory(_ context.Context, p *player) error {
	p.faults.FailEvery(drivertest.MemAllocAsync, driver.OutOfMemory)
	return nil
}

// actDrift frees a block behind the runtime's back.
func actDrift(ctx context.Context, p *player) error {
	on, b, err := p.hold(ctx, "drift", 32*mib)
	if err != nil {
		return err
	}
	return p.device.MemFreeAsync(b.ID.Ptr, on.Handle())
}
