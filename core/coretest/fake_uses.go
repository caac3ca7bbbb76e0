package coretest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

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

// fakeBlock is what the fake keeps of one block.
type fakeBlock struct {
	core.Block
	withheld bool
	account  *core.Account
	intents  []fakeIntent
}

// fakeIntent is an open intent on one block.
type fakeIntent struct {
	launch uint64
	holder core.UseRecord
}

// conflict returns the open intent that stands in the way of a use on stream,
// nil if there is none. Stream order covers intents on the same stream.
func (b *fakeBlock) conflict(stream core.StreamID, access core.Access) *core.UseRecord {
	for _, in := range b.intents {
		if in.holder.Stream != stream && in.holder.Access.Conflicts(access) {
			holder := in.holder
			return &holder
		}
	}
	return nil
}

func (b *fakeBlock) open(in *core.Intent, access core.Access) {
	b.intents = append(b.intents, fakeIntent{in.ID, core.UseRecord{Launch: in.Launch, Stream: in.Stream, Access: access}})
}

func (b *fakeBlock) close(launch uint64) {
	b.intents = slices.DeleteFunc(b.intents, func(in fakeIntent) bool { return in.launch == launch })
}

// live finds the block that id names, if it is live and id's pointer lies
// inside it; f.mu must be held.
func (f *Fake) live(op string, id core.BlockID) (*fakeBlock, error) {
	if id.Ordinal != f.ordinal {
		return nil, &core.StreamMisuseError{Op: op, Block: id, Reason: "the block belongs to another device"}
	}
	b, ok := f.blocks[id.Generation]
	if !ok || id.Ptr < b.ID.Ptr || id.Ptr >= b.ID.Ptr+b.Bytes {
		return nil, &core.UseAfterFreeError{Op: op, Generation: id.Generation, Block: id, State: core.Freed}
	}
	if b.State != core.Live {
		return nil, &core.UseAfterFreeError{Op: op, Generation: id.Generation, Block: id, State: b.State, Tag: b.Tag}
	}
	return b, nil
}

// firstLease is above the small numbers that tests make up for streams.
const firstLease core.StreamID = 1000

// Lease returns a fresh stream and the function that gives it back. From the
// first lease on the fake accepts only leased streams and the default stream;
// before it, any number will do for a stream.
func (f *Fake) Lease() (stream core.StreamID, release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leases == nil {
		f.leases = map[core.StreamID]bool{}
	}
	stream = firstLease + core.StreamID(len(f.leases))
	f.leases[stream] = true
	return stream, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.leases[stream] = false
	}
}

// Streams leases a stream until the test ends. It fits [Subject].
func (f *Fake) Streams(t testing.TB) core.StreamID {
	stream, release := f.Lease()
	t.Cleanup(release)
	return stream
}

// checkStream refuses a stream that is not leased; f.mu must be held.
func (f *Fake) checkStream(op string, stream core.StreamID) error {
	if stream == core.DefaultStream || f.leases == nil || f.leases[stream] {
		return nil
	}
	return &core.StreamMisuseError{Op: op, Stream: stream, Reason: "stream " + stream.String() + " is not leased"}
}
