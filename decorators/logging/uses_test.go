package logging

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func (b *bench) prepare(uses ...core.Use) core.Ticket {
	b.t.Helper()
	t := must.Get(b.log.PrepareUse(ctx, core.UseRequest{Stream: 8, Launch: "merge", Uses: uses}))(b.t)
	return t
}

func TestLaunchesAreLoggedAtTheLevelUses(t *testing.T) {
	b := newBench(t, Uses)
	in, out := b.allocate(64), b.allocate(32)
	b.skip()
	uses := []core.Use{{Block: out.ID, Access: core.Write}, {Block: in.ID, Access: core.Read}}
	want := oplog.Event{Stream: 8, Block: in.ID, Tag: "sort.keys", Requested: 96, Bytes: 96,
		Launch: "merge", Access: core.ReadWrite, Uses: 2}

	ticket := b.prepare(uses...)
	want.Op, want.LaunchID = oplog.OpPrepare, ticket.Intent().ID
	b.want(want)
	must.Do(t, b.log.FinishUse(ctx, ticket))
	want.Op = oplog.OpFinish
	b.want(want)

	ticket = b.prepare(uses...)
	b.skip()
	want.Op, want.LaunchID = oplog.OpAbort, ticket.Intent().ID
	must.Do(t, b.log.AbortUse(ctx, ticket))
	b.want(want)
}

func TestWaitsOfALaunchAreLogged(t *testing.T) {
	b := newBench(t, Uses)
	block := b.allocate(64)
	ticket := b.prepare(core.Use{Block: block.ID, Access: core.Read})
	b.skip()
	in := ticket.Intent()
	in.Uses[0].Elided = 2
	in.Waited = append(in.Waited, core.Waited{Stream: 1, For: core.WaitRef{Launch: 7}}, core.Waited{Stream: 2, For: core.WaitRef{Block: 8}},
		core.Waited{Stream: 3}, core.Waited{Stream: 4, For: core.WaitRef{Launch: 9}}, core.Waited{Stream: 5, For: core.WaitRef{Launch: 10}})
	must.Do(t, b.log.FinishUse(ctx, ticket))
	got := b.one()
	if got.Waits != 5 || got.Elided != 2 {
		t.Errorf("waits %d, elided %d", got.Waits, got.Elided)
	}
	if want := [4]core.WaitRef{{Launch: 7}, {Block: 8}, {}, {Launch: 9}}; got.WaitedFor != want {
		t.Errorf("waited for %v, want the first four: %v", got.WaitedFor, want)
	}
}

func TestFailedPrepareIsLoggedAsItWasAskedFor(t *testing.T) {
	b := newBench(t, Uses)
	x, y := core.BlockID{Generation: 1 << 40, Ordinal: 3}, core.BlockID{Generation: 1<<40 + 1, Ordinal: 3}
	_, err := b.log.PrepareUse(ctx, core.UseRequest{Stream: 8, Launch: "merge",
		Uses: []core.Use{{Block: x, Access: core.Read}, {Block: y, Access: core.Write}}})
	if err == nil {
		t.Fatal("the blocks do not exist")
	}
	b.want(oplog.Event{Op: oplog.OpPrepare, Stream: 8, Block: x, Launch: "merge", Access: core.ReadWrite, Uses: 2, Err: err})
}

func TestFailedEndOfALaunchIsLogged(t *testing.T) {
	b := newBench(t, Uses)
	block := b.allocate(64)
	ticket := b.prepare(core.Use{Block: block.ID, Access: core.Read})
	b.skip()
	b.fake.FailNext("FinishUse", errBad)
	if err := b.log.FinishUse(ctx, ticket); !errors.Is(err, errBad) {
		t.Fatalf("got %v", err)
	}
	if got := b.one(); !errors.Is(got.Err, errBad) || got.Block != block.ID {
		t.Errorf("got %+v", got)
	}
}

func TestNothingIsReadOfASpentOrEmptyTicket(t *testing.T) {
	b := newBench(t, Uses)
	block := b.allocate(64)
	spent := b.prepare(core.Use{Block: block.ID, Access: core.Read})
	must.Do(t, b.log.FinishUse(ctx, spent))
	other := b.prepare(core.Use{Block: block.ID, Access: core.Write}) // likely the same pooled intent
	b.skip()
	for _, ticket := range []core.Ticket{spent, {}} {
		err := b.log.AbortUse(ctx, ticket)
		if err == nil {
			t.Fatal("a ticket that is not open was accepted")
		}
		b.want(oplog.Event{Op: oplog.OpAbort, Err: err})
	}
	must.Do(t, b.log.FinishUse(ctx, other))
}

func TestRecordedUseIsLogged(t *testing.T) {
	b := newBench(t, Uses)
	block := b.allocate(64)
	b.skip()
	want := oplog.Event{Op: oplog.OpRecord, Stream: 9, Block: block.ID, Access: core.ReadWrite, Uses: 1}
	must.Do(t, b.log.RecordUse(ctx, block.ID, 9))
	b.want(want)
	b.fake.FailNext("RecordUse", errBad)
	want.Err = b.log.RecordUse(ctx, block.ID, 9)
	b.want(want)
}

func TestReleaseIsLoggedAtTheLevelUses(t *testing.T) {
	for _, level := range []Level{Operations, Uses} {
		b := newBench(t, level)
		block := b.allocate(64)
		must.Get(b.log.Deallocate(ctx, block.ID))(t)
		b.skip()
		b.fake.Pass()
		if level == Operations {
			b.none()
			continue
		}
		got := b.one()
		if got.Op != oplog.OpRelease || got.Block != block.ID || got.Bytes != 64 || got.Tag != "sort.keys" ||
			got.Stream != 7 || got.Layer != "logging" || got.Ordinal != 3 || got.Duration != 0 || got.Time.IsZero() {
			t.Errorf("got %+v", got)
		}
	}
}

func TestLaunchesAreNotLoggedAtTheLevelOperations(t *testing.T) {
	b := newBench(t, Operations)
	block := b.allocate(64)
	b.skip()
	use := core.Use{Block: block.ID, Access: core.Read}
	must.Do(t, b.log.FinishUse(ctx, b.prepare(use)))
	must.Do(t, b.log.AbortUse(ctx, b.prepare(use)))
	must.Do(t, b.log.RecordUse(ctx, block.ID, 9))
	b.none()
}
