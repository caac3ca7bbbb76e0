package coretest

import (
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
)

var stateCases = []testCase{
	{name: "a block lives, retires and is freed", run: (*trial).lifeOfABlock},
	{name: "a double free is refused", run: (*trial).doubleFree},
	{name: "a failed free consumes nothing", failingFree: true, run: (*trial).failedFree},
	{name: "a free waits for an open intent that is finished", needs: core.UseTracking, run: func(t *trial) {
		t.freeDuringIntent(func(ticket core.Ticket) { t.finish(ticket) })
	}},
	{name: "a free waits for an open intent that is aborted", needs: core.UseTracking, run: func(t *trial) {
		t.freeDuringIntent(func(ticket core.Ticket) { t.abort(ticket) })
	}},
	{name: "a free waits for the last of several intents", needs: core.UseTracking, run: (*trial).freeDuringTwoIntents},
	{name: "a retired block takes no new use", needs: core.UseTracking, run: (*trial).retiredRefusesUse},
	{name: "a recorded use is waited for by the free", needs: core.UseTracking, run: (*trial).recordedUse},
	{name: "without use tracking uses are refused as unsupported", lacks: core.UseTracking, run: (*trial).untracked},
}

func (t *trial) lifeOfABlock() {
	b := t.alloc(512, t.Streams(t))
	t.check(b.State == core.Live && t.Resource.State(b.ID) == core.Live, "a new block is %v and %v", b.State, t.Resource.State(b.ID))
	freed := t.free(b)
	t.check(freed.State > core.Live && freed.State <= core.Freed, "a deallocated block is %v", freed.State)
	t.check(t.Resource.State(b.ID) >= freed.State, "the state went back from %v to %v", freed.State, t.Resource.State(b.ID))
	t.succeed(t.Resource.ReapPending(t.ctx), "reap")
	t.drain()
	t.check(t.Resource.State(b.ID) == core.Freed, "after drain the block is %v", t.Resource.State(b.ID))
	t.check(t.books.notices(b) == 1, "the release was told %d times", t.books.notices(b))
}

func (t *trial) doubleFree() {
	b := t.alloc(512, t.Streams(t))
	t.free(b)
	before := t.Resource.Stats()
	_, err := t.Resource.Deallocate(t.ctx, b.ID)
	var uaf *core.UseAfterFreeError
	t.check(errors.As(err, &uaf) && uaf.Generation == b.ID.Generation && uaf.State != core.Live,
		"the second free got %v, want a use after free that names generation %v", err, b.ID.Generation)
	after := t.Resource.Stats()
	t.check(after.Live == before.Live && after.Deallocations == before.Deallocations, "the second free was counted: %+v, before %+v", after, before)
}

func (t *trial) failedFree() {
	b := t.alloc(512, t.Streams(t))
	before := t.Resource.Stats()
	t.FailNextFree()
	_, err := t.Resource.Deallocate(t.ctx, b.ID)
	t.check(err != nil, "the free succeeded, although it was to fail")
	t.check(t.Resource.State(b.ID) == core.Live, "after a failed free the block is %v", t.Resource.State(b.ID))
	t.check(t.Resource.Stats().Live == before.Live, "after a failed free the books say %+v, before %+v", t.Resource.Stats().Live, before.Live)
	t.succeed(t.launch(core.DefaultStream, core.ReadWrite, b, func() error { return nil }), "use after a failed free")
	t.free(b)
}

// freeDuringIntent is the order that a service meets when a request is
// cancelled between prepare and launch.
func (t *trial) freeDuringIntent(end func(core.Ticket)) {
	alloc, use := t.Streams(t), t.Streams(t)
	b := t.alloc(512, alloc)
	ticket := t.prepare(use, core.ReadWrite, b)
	freed := t.free(b)
	t.heldBack(b, freed.State)
	end(ticket)
	t.drain()
	t.check(t.Resource.State(b.ID) == core.Freed, "after its last intent the block is %v", t.Resource.State(b.ID))
	t.check(t.books.notices(b) == 1, "the release was told %d times", t.books.notices(b))
}

// heldBack checks that nothing releases a block under an open intent.
func (t *trial) heldBack(b core.Block, state core.BlockState) {
	t.Helper()
	t.check(state == core.Retired || state == core.Quarantined, "a block freed under an open intent is %v", state)
	t.succeed(t.Resource.ReapPending(t.ctx), "reap")
	t.check(t.books.notices(b) == 0, "the block was released under an open intent")
	now := t.Resource.State(b.ID)
	t.check(now == core.Retired || now == core.Quarantined, "under an open intent the block became %v", now)
	t.check(t.Resource.Stats().Outstanding().Requested >= b.Requested, "the block left the books under an open intent")
}

func (t *trial) freeDuringTwoIntents() {
	b := t.alloc(512, t.Streams(t))
	one, two := t.prepare(t.Streams(t), core.Read, b), t.prepare(t.Streams(t), core.Read, b)
	t.heldBack(b, t.free(b).State)
	t.finish(two)
	t.heldBack(b, t.Resource.State(b.ID))
	t.finish(one)
}

func (t *trial) retiredRefusesUse() {
	stream := t.Streams(t)
	b := t.alloc(512, stream)
	ticket := t.prepare(stream, core.Read, b)
	t.free(b)
	t.refusedEverywhere(b.ID, "a retired block", core.ErrUseAfterFree)
	t.finish(ticket)
}

func (t *trial) recordedUse() {
	b := t.alloc(512, t.Streams(t))
	use := t.Streams(t)
	t.succeed(t.Resource.RecordUse(t.ctx, b.ID, use), "record a use")
	t.succeed(t.Resource.RecordUse(t.ctx, b.ID, core.DefaultStream), "record a use on the default stream")
	t.check(t.Resource.State(b.ID) == core.Live, "a recorded use made the block %v", t.Resource.State(b.ID))
	t.free(b)
	t.drain()
	t.check(t.Resource.State(b.ID) == core.Freed, "after drain the block is %v", t.Resource.State(b.ID))
}

func (t *trial) untracked() {
	b := t.alloc(512, core.DefaultStream)
	_, err := t.tryPrepare(core.DefaultStream, "", core.Use{Block: b.ID, Access: core.Read})
	for what, err := range map[string]error{
		"prepare": err,
		"finish":  t.Resource.FinishUse(t.ctx, core.Ticket{}),
		"abort":   t.Resource.AbortUse(t.ctx, core.Ticket{}),
		"record":  t.Resource.RecordUse(t.ctx, b.ID, core.DefaultStream),
	} {
		t.refused(err, what, core.ErrStreamMisuse)
		t.refused(err, what, errors.ErrUnsupported)
	}
	t.free(b)
}
