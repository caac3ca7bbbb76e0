package coretest

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
)

func (d *toy) PrepareUse(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
	uses := make([]core.Use, len(r.Uses))
	for i, u := range r.Uses {
		uses[i] = core.Use{Block: d.virtual(u.Block), Access: u.Access}
	}
	r.Uses = uses
	ticket, err := d.Fake.PrepareUse(ctx, r)
	if err != nil {
		return ticket, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	in := ticket.Intent()
	for i := range in.Uses {
		d.queueWaits(in, i)
	}
	d.open[ticket] = toyLaunch{r.Stream, uses}
	return ticket, nil
}

func (d *toy) queueWaits(in *core.Intent, i int) {
	use := &in.Uses[i]
	for _, earlier := range d.blocks[use.Block.Generation].uses {
		ordered := earlier.stream == in.Stream || !earlier.writes && !use.Access.Writes() && d.bug != readsAreSerialised
		if ordered || d.bug == prepareQueuesNoWaits {
			continue
		}
		d.wait(in.Stream, earlier.done)
		use.Waits++
		in.Waited = append(in.Waited, core.Waited{Use: i, Stream: earlier.stream})
	}
}

func (d *toy) FinishUse(ctx context.Context, t core.Ticket) error {
	if launch, ok := d.take(t); ok {
		d.mu.Lock()
		done := d.record(launch.stream)
		for _, u := range launch.uses {
			b := d.blocks[u.Block.Generation]
			b.uses = append(b.uses, toyUse{launch.stream, u.Access.Writes(), done})
		}
		d.mu.Unlock()
	}
	err := d.Fake.FinishUse(ctx, t)
	d.queueFrees()
	return err
}

func (d *toy) AbortUse(ctx context.Context, t core.Ticket) error {
	d.take(t)
	err := d.Fake.AbortUse(ctx, t)
	d.queueFrees()
	return err
}

func (d *toy) take(t core.Ticket) (toyLaunch, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	launch, ok := d.open[t]
	delete(d.open, t)
	return launch, ok
}

func (d *toy) RecordUse(ctx context.Context, id core.BlockID, stream core.StreamID) error {
	if err := d.Fake.RecordUse(ctx, d.virtual(id), stream); err != nil || d.bug == recordIsForgotten {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.blocks[id.Generation]
	b.uses = append(b.uses, toyUse{stream, true, d.record(stream)})
	return nil
}
