package coretest

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
)

// PrepareUse opens an intent; the fake queues no waits. A conflicting intent
// on another stream is refused, or waited for if r.Wait is set.
func (f *Fake) PrepareUse(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
	f.mu.Lock()
	err := f.begin("PrepareUse", "%s %d", r.Launch, len(r.Uses))
	f.mu.Unlock()
	if err != nil {
		return core.Ticket{}, err
	}
	in, err := core.OpenIntent(f, &r)
	if err != nil {
		return core.Ticket{}, err
	}
	if err := f.admit(ctx, in, r.Wait); err != nil {
		in.Recycle()
		return core.Ticket{}, err
	}
	return in.Ticket(f), nil
}

// admit opens the intent on all its blocks or on none.
func (f *Fake) admit(ctx context.Context, in *core.Intent, wait bool) error {
	for {
		f.mu.Lock()
		err, closed := f.tryAdmit(in), f.closed
		f.mu.Unlock()
		var misuse *core.StreamMisuseError
		if !wait || !errors.As(err, &misuse) || misuse.Holder == nil {
			return err
		}
		select {
		case <-closed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

func (f *Fake) tryAdmit(in *core.Intent) error {
	const op = "PrepareUse"
	if err := f.checkStream(op, in.Stream); err != nil {
		return err
	}
	for i := range in.Uses {
		use := &in.Uses[i]
		b, err := f.live(op, use.Block)
		if err != nil {
			return err
		}
		if holder := b.conflict(in.Stream, use.Access); holder != nil {
			return &core.StreamMisuseError{Op: op, Block: use.Block, Stream: in.Stream, Holder: holder,
				Reason: "another launch has announced a conflicting use and has not ended it"}
		}
		use.Tag, use.Requested, use.Bytes = b.Tag, b.Requested, b.Bytes
	}
	for i := range in.Uses {
		f.blocks[in.Uses[i].Block.Generation].open(in, in.Uses[i].Access)
	}
	f.stats.OpenIntents++
	return nil
}

// FinishUse closes the intent.
func (f *Fake) FinishUse(_ context.Context, t core.Ticket) error { return f.end("FinishUse", t) }

// AbortUse closes the intent.
func (f *Fake) AbortUse(_ context.Context, t core.Ticket) error { return f.end("AbortUse", t) }

func (f *Fake) end(op string, t core.Ticket) error {
	f.mu.Lock()
	scripted := f.begin(op, "")
	in, err := t.End(f, op)
	if err != nil {
		f.mu.Unlock()
		return err
	}
	var passed []core.Block
	for i := range in.Uses {
		b := f.blocks[in.Uses[i].Block.Generation]
		b.close(in.ID)
		if b.State == core.Retired {
			passed = f.queueFree(b, passed)
		}
	}
	in.Recycle()
	f.countEnd(op)
	close(f.closed)
	f.closed = make(chan struct{})
	f.mu.Unlock()
	f.notify(passed...)
	return scripted
}

func (f *Fake) countEnd(op string) {
	f.stats.OpenIntents--
	if op == "FinishUse" {
		f.stats.Launches++
	} else {
		f.stats.Aborts++
	}
}

// RecordUse checks the block and the stream.
func (f *Fake) RecordUse(_ context.Context, id core.BlockID, stream core.StreamID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.begin("RecordUse", "%d %v", id.Generation, stream); err != nil {
		return err
	}
	if err := f.checkStream("RecordUse", stream); err != nil {
		return err
	}
	_, err := f.live("RecordUse", id)
	return err
}
