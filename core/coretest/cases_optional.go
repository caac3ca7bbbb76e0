package coretest

import (
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
)

var reservationCases = []testCase{
	{name: "without reservations a claim is refused as unsupported", lacks: core.Reservations, run: (*trial).noReservations},
	{name: "a claim is granted and given back", needs: core.Reservations, room: 2 * mib, run: (*trial).claimLife},
	{name: "a claim is granted whole or refused", needs: core.Reservations, limited: true, run: (*trial).claimIsWhole},
}

func (t *trial) noReservations() {
	_, err := t.Resource.Reserve(t.ctx, 64, "claim")
	t.refused(err, "reserve", core.ErrStreamMisuse)
	t.refused(err, "reserve", errors.ErrUnsupported)
	err = t.Resource.ReleaseClaim(t.ctx, 1)
	t.refused(err, "release of a claim", core.ErrStreamMisuse)
	t.refused(err, "release of a claim", errors.ErrUnsupported)
}

func (t *trial) claimLife() {
	before := t.Resource.Stats()
	claim, err := t.Resource.Reserve(t.ctx, mib, "claim")
	t.succeed(err, "reserve")
	t.check(claim.ID != 0 && claim.Bytes == mib && claim.Tag == "claim", "the claim is %+v", claim)
	s := t.Resource.Stats()
	t.check(s.Claims == before.Claims+1 && s.Claimed == before.Claimed+mib, "after a claim of %d: %d claims of %d bytes", mib, s.Claims, s.Claimed)

	b, err := t.allocate(core.Request{Bytes: kib, Tag: "claim", Claim: claim.ID})
	t.succeed(err, "allocate from the claim")
	t.check(t.Resource.Stats().Claimed == before.Claimed+mib-kib, "after drawing %d of %d the claim has %d", kib, mib, t.Resource.Stats().Claimed)
	t.succeed(t.Resource.ReleaseClaim(t.ctx, claim.ID), "release the claim")
	s = t.Resource.Stats()
	t.check(s.Claims == before.Claims && s.Claimed == before.Claimed, "after the release: %d claims of %d bytes", s.Claims, s.Claimed)
	t.check(s.Live.Requested == before.Live.Requested+kib, "the block drawn from the claim left the books: %+v", s.Live)
	t.check(t.Resource.ReleaseClaim(t.ctx, claim.ID) != nil, "a claim was released twice")
	_, err = t.allocate(core.Request{Bytes: kib, Claim: claim.ID})
	t.check(err != nil, "a released claim was drawn from")
	t.free(b)
}

func (t *trial) claimIsWhole() {
	before := t.Resource.Stats()
	t.check(before.Limit == t.Budget, "the limit is %d, want %d", before.Limit, t.Budget)
	_, err := t.Resource.Reserve(t.ctx, before.Limit+1, "claim")
	t.refused(err, "a claim of more than the limit", core.ErrOutOfBudget)
	s := t.Resource.Stats()
	t.check(s.Claims == before.Claims && s.Claimed == before.Claimed, "a refused claim left %d claims of %d bytes", s.Claims, s.Claimed)
}

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
