package main

import (
	"context"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
)

func guardScenes() []scene {
	return []scene{
		{name: "hunt", act: actHunt},
		{name: "quarantine", idle: true, configure: quarantining, act: actQuarantine},
		{name: "pressure", idle: true, configure: pressing, act: actPressure},
		{name: "isolate", act: actIsolate},
	}
}

func actHunt(ctx context.Context, p *player) error {
	mode := "hunt"
	return p.rt.SwitchGuard(ctx, fencepost.GuardChange{Mode: (*fencepost.GuardMode)(&mode)})
}

func quarantining(_ *player, cfg *fencepost.Config) {
	cfg.Guard = "hunt"
	cfg.GuardConfig.QuarantineBytes, cfg.GuardConfig.QuarantineAge = 64*mib, -1
}

// actQuarantine keeps a block and frees some.
func actQuarantine(ctx context.Context, p *player) error {
	on, _, err := p.hold(ctx, "kept", mib)
	if err != nil {
		return err
	}
	for range 16 {
		b, err := p.allocate(ctx, on, "freed", mib)
		if err != nil {
			return err
		}
		if err := p.free(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// pressing has a quarantine as large as the budget.
func pressing(p *player, cfg *fencepost.Config) {
	quarantining(p, cfg)
	cfg.Budget = limit
}

func actPressure(ctx context.Context, p *player) error {
	on, err := p.lease(ctx, "pressed")
	if err != nil {
		return err
	}
	p.loop(ctx, beat, func() error { return p.once(ctx, on, "pressed", 3*mib) })
	return nil
}

// actIsolate keeps one isolated block and frees another.
func actIsolate(ctx context.Context, p *player) error {
	on, err := p.lease(ctx, "isolated")
	if err != nil {
		return err
	}
	request := core.Request{Bytes: mib, Stream: on.ID(), Tag: "isolated", Isolated: true}
	freed, err := p.rt.Allocate(ctx, request)
	if err != nil {
		return err
	}
	if _, err := p.rt.Allocate(ctx, request); err != nil {
		return err
	}
	return p.free(ctx, freed)
}
