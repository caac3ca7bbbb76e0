package coretest

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

var ticketCases = []testCase{
	{name: "a ticket is used once", needs: core.UseTracking, run: (*trial).ticketOnce},
	{name: "a ticket ends where it was given", needs: core.UseTracking, run: (*trial).foreignTicket},
	{name: "of concurrent ends exactly one wins", needs: core.UseTracking, bare: true, run: (*trial).concurrentEnds},
	{name: "an abort leaves no trace", needs: core.UseTracking, run: (*trial).abortLeavesNothing},
	{name: "a launch prepares all its blocks or none", needs: core.UseTracking, run: (*trial).allOrNone},
	{name: "a block named twice counts once", needs: core.UseTracking, run: (*trial).duplicatesFold},
	{name: "an intent knows its blocks", needs: core.UseTracking, run: (*trial).intentDescribes},
}

func (t *trial) ticketOnce() {
	b := t.alloc(64, core.DefaultStream)
	for _, end := range []func(core.Ticket){t.finish, t.abort} {
		ticket := t.prepare(core.DefaultStream, core.Write, b)
		t.check(ticket.IsOpen(), "a new ticket is not open")
		end(ticket)
		t.check(!ticket.IsOpen(), "an ended ticket is open")
		t.refused(t.Resource.FinishUse(t.ctx, ticket), "finish of a spent ticket", core.ErrStreamMisuse)
		t.refused(t.Resource.AbortUse(t.ctx, ticket), "abort of a spent ticket", core.ErrStreamMisuse)
	}
	t.free(b)
}

// foreignTicket uses a fake as the other runtime.
func (t *trial) foreignTicket() {
	other := NewFake(t.Resource.Ordinal())
	b := t.alloc(64, core.DefaultStream)
	theirs, err := other.Allocate(t.ctx, core.Request{Bytes: 64})
	t.succeed(err, "allocate on the other runtime")
	foreign, err := other.PrepareUse(t.ctx, core.UseRequest{Uses: []core.Use{{Block: theirs.ID, Access: core.Read}}})
	t.succeed(err, "prepare on the other runtime")
	ours := t.prepare(core.DefaultStream, core.Write, b)

	t.refused(t.Resource.FinishUse(t.ctx, foreign), "finish of another runtime's ticket", core.ErrStreamMisuse)
	t.refused(t.Resource.AbortUse(t.ctx, foreign), "abort of another runtime's ticket", core.ErrStreamMisuse)
	t.refused(other.FinishUse(t.ctx, ours), "finish on another runtime", core.ErrStreamMisuse)
	t.check(ours.IsOpen() && foreign.IsOpen(), "a refused end spent the ticket")
	t.finish(ours)
	t.succeed(other.FinishUse(t.ctx, foreign), "finish where it was given")
	t.free(b)
}

// concurrentEnds is for backends: a decorator has to read the intent before it
// forwards the end of its ticket, which a second end at the same moment makes a
// data race in the caller's program.
func (t *trial) concurrentEnds() {
	b := t.alloc(64, core.DefaultStream)
	for range 50 {
		ticket := t.prepare(core.DefaultStream, core.ReadWrite, b)
		var won atomic.Int32
		var wg sync.WaitGroup
		for i := range threads {
			wg.Go(func() {
				end := t.Resource.FinishUse
				if i%2 == 1 {
					end = t.Resource.AbortUse
				}
				if err := end(t.ctx, ticket); err == nil {
					won.Add(1)
				} else {
					t.refused(err, "a concurrent end", core.ErrStreamMisuse)
				}
			})
		}
		wg.Wait()
		t.check(won.Load() == 1, "%d ends of one ticket succeeded", won.Load())
	}
	t.free(b)
}

func (t *trial) abortLeavesNothing() {
	alloc, other := t.Streams(t), t.Streams(t)
	b := t.alloc(64, alloc)
	launches := t.Resource.Stats().Launches
	t.abort(t.prepare(other, core.ReadWrite, b))
	t.check(t.Resource.Stats().Launches == launches, "an abort was counted as a launch")
	ticket := t.prepare(alloc, core.ReadWrite, b)
	t.check(ticket.Waits() == 0 && ticket.Elided() == 0, "an aborted use on another stream left a dependency: %d waits, %d elided", ticket.Waits(), ticket.Elided())
	t.finish(ticket)
	t.free(b)
}

func (t *trial) allOrNone() {
	one, two := t.Streams(t), t.Streams(t)
	kept, gone := t.alloc(64, one), t.alloc(64, one)
	t.free(gone)
	for _, uses := range [][]core.Use{
		{{Block: kept.ID, Access: core.Write}, {Block: gone.ID, Access: core.Write}},
		{{Block: gone.ID, Access: core.Write}, {Block: kept.ID, Access: core.Write}},
	} {
		_, err := t.tryPrepare(one, "half", uses...)
		t.refused(err, "prepare with a freed block among others", core.ErrUseAfterFree)
		t.check(t.Resource.Stats().OpenIntents == 0, "a refused prepare left an intent open")
		t.abort(t.prepare(two, core.Write, kept)) // would conflict with an intent left behind
	}
	t.free(kept)
}

func (t *trial) duplicatesFold() {
	b := t.alloc(64, core.DefaultStream)
	view := b.ID
	view.Ptr += 8
	ticket, err := t.tryPrepare(core.DefaultStream, "twice", core.Use{Block: b.ID, Access: core.Read}, core.Use{Block: view, Access: core.Write})
	t.succeed(err, "prepare a block twice")
	uses := ticket.Intent().Uses
	t.check(len(uses) == 1 && uses[0].Access == core.ReadWrite, "a block read and written became %d uses: %+v", len(uses), uses)
	t.finish(ticket)
	t.free(b)
}

func (t *trial) intentDescribes() {
	stream := t.Streams(t)
	older, newer := t.alloc(64, stream), t.alloc(128, stream)
	ticket, err := t.tryPrepare(stream, "join", core.Use{Block: newer.ID, Access: core.Write}, core.Use{Block: older.ID, Access: core.Read})
	t.succeed(err, "prepare two blocks")
	in := ticket.Intent()
	t.check(in.Launch == "join" && in.Stream == stream && in.ID != 0, "the intent is of launch %d %q on stream %v", in.ID, in.Launch, in.Stream)
	if len(in.Uses) != 2 {
		t.Fatalf("the intent has %d uses, want 2", len(in.Uses))
	}
	for i, b := range []core.Block{older, newer} {
		u := in.Uses[i]
		t.check(u.Block.Generation == b.ID.Generation, "use %d is of generation %v, want %v: they are sorted", i, u.Block.Generation, b.ID.Generation)
		t.check(u.Tag == b.Tag && u.Requested == b.Requested, "use %d is of %d bytes %q, want %d bytes %q", i, u.Requested, u.Tag, b.Requested, b.Tag)
	}
	t.succeed(errors.Join(t.Resource.FinishUse(t.ctx, ticket), t.tryFree(older), t.tryFree(newer)), "give back")
}
