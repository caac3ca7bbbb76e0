package coretest

import (
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
)

var isolationCases = []testCase{
	{name: "without isolation an isolated block is refused as unsupported", lacks: core.Isolation, run: (*trial).noIsolation},
	{name: "an isolated block lives like any other and does not come again", needs: core.Isolation, room: 32 * mib, run: (*trial).isolatedLife},
}

func (t *trial) noIsolation() {
	before := t.Resource.Stats()
	b, err := t.allocate(core.Request{Bytes: kib, Isolated: true})
	t.refused(err, "an isolated block", errors.ErrUnsupported)
	t.check(b == core.Block{}, "a refused request gave %+v", b)
	t.check(t.Resource.Stats().Live == before.Live, "a refused request is live: %+v", t.Resource.Stats().Live)
	unit := t.Resource.Inspect().IsolationGranularity()
	t.check(unit == 0, "without isolation the granularity is %d", unit)
}

// isolatedLife allocates more than once, so that an address that came again
// would be seen.
func (t *trial) isolatedLife() {
	unit := t.Resource.Inspect().IsolationGranularity()
	t.check(unit >= core.DefaultAlign && unit&(unit-1) == 0, "the granularity is %d", unit)
	stream := t.Streams(t)
	seen := map[uint64]bool{}
	for range 4 {
		before := t.Resource.Stats().Live
		b, err := t.allocate(core.Request{Bytes: kib, Stream: stream, Tag: "isolated", Isolated: true})
		t.succeed(err, "allocate an isolated block")
		t.check(b.Requested == kib && b.Bytes == kib && b.Tag == "isolated" && b.State == core.Live, "the block is %+v", b)
		t.check(!seen[b.ID.Ptr], "the address %#x came again", b.ID.Ptr)
		seen[b.ID.Ptr] = true
		after := t.Resource.Stats().Live
		t.check(after.Requested == before.Requested+kib && after.Blocks == before.Blocks+1, "live was %+v and is %+v", before, after)
		t.free(b)
		t.succeed(t.Resource.Drain(t.ctx), "drain")
		t.check(t.Resource.State(b.ID) == core.Freed, "the block is %v after a drain", t.Resource.State(b.ID))
		_, err = t.Resource.Deallocate(t.ctx, b.ID)
		t.refused(err, "a second free", core.ErrUseAfterFree)
	}
}
