package main

import (
	"context"
	"errors"
	"os"
	"runtime"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

func bugScenes() []scene {
	return []scene{
		{name: "misuse", act: actMisuse},
		{name: "corrupt", configure: hunting, act: actCorrupt},
		{name: "badfolder", configure: hunting, act: actBadFolder},
		{name: "recorder", act: actRecorder},
		{name: "unfenced", idle: true, act: actUnfenced},
		{name: "lose", act: func(_ context.Context, p *player) error { p.device.LoseContext(driver.IllegalAddress); return nil }},
	}
}

// hunting guards every block, compares after every launch, and writes
// incidents.
func hunting(p *player, cfg *fencepost.Config) {
	cfg.Guard, cfg.Incidents = "hunt:bisect", p.folder
	cfg.GuardConfig.QuarantineBytes = 4 * mib
}

// actMisuse frees twice.
func actMisuse(ctx context.Context, p *player) error {
	_, b, err := p.hold(ctx, "victim", mib)
	if err != nil {
		return err
	}
	if err := p.free(ctx, b); err != nil {
		return err
	}
	if err := p.free(ctx, b); !errors.Is(err, core.ErrUseAfterFree) {
		return errors.Join(errors.New("the second free was not refused"), err)
	}
	return nil
}

// actCorrupt lets a launch write behind its block.
func actCorrupt(ctx context.Context, p *player) error {
	on, b, err := p.hold(ctx, "victim", mib)
	if err != nil {
		return err
	}
	err = p.launch(ctx, on, b, core.Write, func(context.Context) error {
		return p.rt.Driver().MemsetAsync(b.ID.Ptr+b.Requested, 0x42, 16, on.Handle())
	})
	if err != nil {
		return err
	}
	return p.free(ctx, b)
}

// actBadFolder corrupts memory when the folder of incidents is gone.
func actBadFolder(ctx context.Context, p *player) error {
	if err := os.RemoveAll(p.folder); err != nil {
		return err
	}
	if err := os.WriteFile(p.folder, nil, 0o600); err != nil { // so that it cannot be made anew
		return err
	}
	return actCorrupt(ctx, p)
}

// actRecorder forgets a recorder between its preflight and its end.
func actRecorder(ctx context.Context, p *player) error {
	on, b, err := p.hold(ctx, "forgotten", mib)
	if err != nil {
		return err
	}
	func() {
		r := core.NewStrictRecorder(on.ID())
		if err = r.Write(b); err == nil {
			err = r.Preflight(ctx, p.rt)
		}
	}()
	p.loop(ctx, beat, func() error { runtime.GC(); return nil })
	return err
}

// actUnfenced fails both the event of a launch and the synchronise that takes
// its place.
func actUnfenced(ctx context.Context, p *player) error {
	on, b, err := p.hold(ctx, "unfenced", mib)
	if err != nil {
		return err
	}
	ticket, err := p.rt.Core().PrepareUse(ctx, core.UseRequest{Stream: on.ID(), Uses: []core.Use{{Block: b.ID, Access: core.Write}}})
	if err != nil {
		return err
	}
	p.faults.FailEvery(drivertest.EventRecord, driver.InvalidHandle)
	p.faults.FailEvery(drivertest.StreamSynchronize, driver.InvalidHandle)
	defer p.faults.Clear()
	if err := p.rt.Core().FinishUse(ctx, ticket); err == nil {
		return errors.New("the launch was fenced after all")
	}
	return nil
}
