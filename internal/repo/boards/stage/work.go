package main

import (
	"context"
	"errors"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/telemetry/spanpipe"
)

// quick is the pause of what happens often: as often as the boards must show, and
// no more, since a busy machine has to play all scenes at once.
const quick = 15 * time.Millisecond

func workScenes() []scene {
	return []scene{
		{name: "quiet", act: func(context.Context, *player) error { return nil }},
		{name: "work", configure: traced, act: actWork},
		{name: "slow", act: func(_ context.Context, p *player) error {
			p.driver.slow.Store(int64(30 * time.Millisecond))
			return nil
		}},
		{name: "cross", act: actCross},
		{name: "abort", act: actAbort},
		{name: "intent", act: actIntent},
		{name: "readers", act: actReaders},
	}
}

// actWork does what goes on anyway three times as often. On a busy machine a pause
// takes longer; what was to be done meanwhile is made up for.
func actWork(ctx context.Context, p *player) error {
	on, err := p.lease(ctx, "work")
	if err != nil {
		return err
	}
	begin, done := time.Now(), time.Duration(0)
	p.loop(ctx, quick, func() error {
		for ; done <= time.Since(begin)/quick && ctx.Err() == nil; done++ {
			p.others.busy(p.scene.uuid())
			if err := p.once(ctx, on, "work", beatBytes); err != nil {
				return err
			}
		}
		return nil
	})
	return nil
}

// pair leases two streams and allocates a block on the first.
func (p *player) pair(ctx context.Context) (x, y *cuda.Lease, b core.Block, err error) {
	if x, err = p.lease(ctx, "first"); err != nil {
		return x, y, b, err
	}
	if y, err = p.lease(ctx, "second"); err != nil {
		return x, y, b, err
	}
	b, err = p.allocate(ctx, x, "shared", mib)
	return x, y, b, err
}

// actCross has one stream write and another read twice: of the reads the first
// needs a wait and the second none.
func actCross(ctx context.Context, p *player) error {
	x, y, b, err := p.pair(ctx)
	if err != nil {
		return err
	}
	read := func() error {
		return p.launch(ctx, y, b, core.Read, func(context.Context) error {
			return p.rt.Driver().CopyToHostAsync(make([]byte, 64), b.ID.Ptr, y.Handle())
		})
	}
	p.loop(ctx, quick, func() error {
		release, err := p.device.Hold(x.Handle()) // or the write would be seen done
		if err != nil {
			return err
		}
		defer release()
		return errors.Join(p.fill(ctx, x, b), read(), read())
	})
	return nil
}

func actAbort(ctx context.Context, p *player) error {
	x, _, b, err := p.pair(ctx)
	p.loop(ctx, quick, func() error {
		return p.launch(ctx, x, b, core.Write, func(context.Context) error {
			return core.NotEnqueued(errors.New("the scene aborts its launches"))
		})
	})
	return err
}

// actIntent prepares a launch and never ends it.
func actIntent(ctx context.Context, p *player) error {
	x, _, b, err := p.pair(ctx)
	if err != nil {
		return err
	}
	_, err = p.rt.Core().PrepareUse(ctx, core.UseRequest{Stream: x.ID(), Uses: []core.Use{{Block: b.ID, Access: core.Read}}})
	return err
}

// actReaders keeps launches outstanding, each of a block of its own: their
// events cannot be given up before the stream goes on.
func actReaders(ctx context.Context, p *player) error {
	x, err := p.lease(ctx, "held")
	if err != nil {
		return err
	}
	if _, err := p.device.Hold(x.Handle()); err != nil {
		return err
	}
	for range 50 {
		b, err := p.allocate(ctx, x, "read", beatBytes)
		if err != nil {
			return err
		}
		if err := p.fill(ctx, x, b); err != nil {
			return err
		}
	}
	return nil
}

// exportTo traces everything and hands the spans to an exporter.
func exportTo(p *player, cfg *fencepost.Config, e sdktrace.SpanExporter, queue int) {
	p.spans = spanpipe.New(e, spanpipe.Config{Queue: queue})
	p.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(p.spans))
	cfg.TracerProvider = p.tracer
}

func traced(p *player, cfg *fencepost.Config) { exportTo(p, cfg, accepting{}, 0) }

// accepting takes every span.
type accepting struct{}

func (accepting) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (accepting) Shutdown(context.Context) error                             { return nil }
