package coretest

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
)

// noStream is a number that no lease has.
const noStream core.StreamID = 1 << 62

var identityCases = []testCase{
	{name: "a block carries what was asked", run: (*trial).carriesRequest},
	{name: "names that are too long are cut alike", run: (*trial).longNames},
	{name: "generations increase", run: (*trial).generationsIncrease},
	{name: "a stale handle is refused everywhere", run: (*trial).staleHandle},
	{name: "an invented handle is refused everywhere", run: (*trial).inventedHandle},
	{name: "another device's block is refused everywhere", run: (*trial).wrongOrdinal},
	{name: "a pointer outside the block is refused everywhere", run: (*trial).outsidePointer},
	{name: "a pointer inside the block is accepted", needs: core.UseTracking, run: (*trial).insidePointer},
	{name: "a stream that is not leased is refused", needs: core.UseTracking | core.StreamOrdered, run: (*trial).unknownStream},
	{name: "a released lease is refused and its blocks can be freed", needs: core.UseTracking | core.StreamOrdered, run: (*trial).releasedLease},
	{name: "zero values are refused without a panic", run: (*trial).zeroValues},
}

func (t *trial) carriesRequest() {
	stream := t.Streams(t)
	b, err := t.allocate(core.Request{Bytes: 1000, Requested: 900, Align: 64, Stream: stream, Tag: "sort.keys"})
	t.succeed(err, "allocate")
	t.check(b.ID.Ordinal == t.Resource.Ordinal(), "the block is on device %d, the resource serves %d", b.ID.Ordinal, t.Resource.Ordinal())
	t.check(b.ID.AllocStream == stream, "the block's stream is %v, want %v", b.ID.AllocStream, stream)
	t.check(b.Requested == 900 && b.Bytes >= 1000, "sizes are %d of %d, want 900 of at least 1000", b.Requested, b.Bytes)
	t.check(b.Align >= 64 && b.ID.Ptr%64 == 0, "aligned to %d at %#x, want 64", b.Align, b.ID.Ptr)
	t.check(b.Tag == "sort.keys", "tag is %q", b.Tag)
	freed := t.free(b)
	t.check(freed.ID.Generation == b.ID.Generation && freed.Requested == 900 && freed.Bytes == b.Bytes && freed.Tag == b.Tag,
		"freed as %+v, allocated as %+v", freed, b)

	plain, err := t.allocate(core.Request{Bytes: 100, Stream: stream})
	t.succeed(err, "allocate without options")
	t.check(plain.Tag == names.Untagged, "an empty tag became %q", plain.Tag)
	t.check(plain.Requested == 100 && plain.Align >= core.DefaultAlign, "defaults are %d requested, aligned to %d", plain.Requested, plain.Align)
	t.free(plain)
}

// longNames demands that a name is cut everywhere to the length at which the
// resource's caller sees it.
func (t *trial) longNames() {
	long := strings.Repeat("name", names.Max)
	stream, want := t.Streams(t), names.Bound(long)
	b, err := t.allocate(core.Request{Bytes: kib, Stream: stream, Tag: core.Tag(long)})
	t.succeed(err, "allocate under a long tag")
	t.check(string(b.Tag) == want, "a tag of %d bytes became one of %d, %q", len(long), len(b.Tag), b.Tag)
	if t.tracks() {
		ticket, err := t.tryPrepare(stream, long, core.Use{Block: b.ID, Access: core.Write})
		t.succeed(err, "prepare under a long name")
		in := ticket.Intent()
		t.check(in.Launch == want && string(in.Uses[0].Tag) == want, "a name of %d bytes became one of %d, over a block tagged %q", len(long), len(in.Launch), in.Uses[0].Tag)
		t.finish(ticket)
	}
	freed := t.free(b)
	t.check(string(freed.Tag) == want, "the free names the tag %q", freed.Tag)
	if t.Features.Has(core.Reservations) {
		claim, err := t.Resource.Reserve(t.ctx, kib, core.Tag(long))
		t.succeed(err, "reserve under a long tag")
		t.check(string(claim.Tag) == want, "a claim's tag of %d bytes became %q", len(long), claim.Tag)
		t.succeed(t.Resource.ReleaseClaim(t.ctx, claim.ID), "release the claim")
	}
}

func (t *trial) generationsIncrease() {
	last := core.Generation(0)
	for range 20 {
		b := t.alloc(64, core.DefaultStream)
		t.check(b.ID.Generation > last, "generation %v came after %v", b.ID.Generation, last)
		last = b.ID.Generation
		t.free(b)
	}
}

// refusedEverywhere checks that each operation on id is refused with one of
// targets, and that none of them changed the books.
func (t *trial) refusedEverywhere(id core.BlockID, what string, targets ...error) {
	t.Helper()
	before := t.Resource.Stats().Live
	_, err := t.Resource.Deallocate(t.ctx, id)
	t.refused(err, "deallocate of "+what, targets...)
	if !t.tracks() {
		targets = []error{core.ErrStreamMisuse}
	}
	_, err = t.tryPrepare(core.DefaultStream, "refused", core.Use{Block: id, Access: core.Read})
	t.refused(err, "prepare of "+what, targets...)
	err = t.Resource.RecordUse(t.ctx, id, core.DefaultStream)
	t.refused(err, "record of "+what, targets...)
	t.check(t.Resource.Stats().Live == before, "a refusal changed the books: %+v, before %+v", t.Resource.Stats().Live, before)
}

func (t *trial) staleHandle() {
	b := t.alloc(256, core.DefaultStream)
	t.free(b)
	t.refusedEverywhere(b.ID, "a freed block", core.ErrUseAfterFree)
	t.drain()
	next := t.alloc(256, core.DefaultStream) // it may well sit at the same address
	t.refusedEverywhere(b.ID, "a released block", core.ErrUseAfterFree)
	t.check(t.Resource.State(b.ID) == core.Freed, "a released block is %v", t.Resource.State(b.ID))
	t.check(t.Resource.State(next.ID) == core.Live, "the next block is %v", t.Resource.State(next.ID))
	_, err := t.Resource.Deallocate(t.ctx, b.ID)
	var uaf *core.UseAfterFreeError
	t.check(errors.As(err, &uaf) && uaf.Generation == b.ID.Generation, "the refusal %v does not name the stale generation %v", err, b.ID.Generation)
	t.free(next)
}

func (t *trial) inventedHandle() {
	b := t.alloc(256, core.DefaultStream)
	id := b.ID
	id.Generation = core.NextGeneration()
	t.refusedEverywhere(id, "an invented generation", core.ErrUseAfterFree)
	t.check(t.Resource.State(id) == core.Freed, "a block that never was is %v", t.Resource.State(id))
	t.free(b)
}

func (t *trial) wrongOrdinal() {
	b := t.alloc(256, core.DefaultStream)
	id := b.ID
	id.Ordinal++
	t.refusedEverywhere(id, "another device's block", core.ErrStreamMisuse)
	t.free(b)
}

func (t *trial) outsidePointer() {
	b := t.alloc(256, core.DefaultStream)
	for _, ptr := range []uint64{0, b.ID.Ptr - mib, b.ID.Ptr + mib, b.ID.Ptr + 1<<40} {
		id := b.ID
		id.Ptr = ptr
		t.refusedEverywhere(id, "a pointer outside its block", core.ErrUseAfterFree, core.ErrStreamMisuse)
	}
	t.check(t.Resource.State(b.ID) == core.Live, "the block is %v after the refusals", t.Resource.State(b.ID))
	t.free(b)
}

func (t *trial) insidePointer() {
	b := t.alloc(256, core.DefaultStream)
	view := b
	view.ID.Ptr += 128
	t.finish(t.prepare(core.DefaultStream, core.Read, view))
	t.free(b)
}

func (t *trial) unknownStream() {
	t.Streams(t) // so that there are leases, of which noStream is none
	_, err := t.allocate(core.Request{Bytes: 64, Stream: noStream})
	t.refused(err, "allocate on a stream that is not leased", core.ErrStreamMisuse)
	b := t.alloc(64, core.DefaultStream)
	t.refusedOn(noStream, b)
	t.free(b)
}

func (t *trial) refusedOn(stream core.StreamID, b core.Block) {
	t.Helper()
	_, err := t.tryPrepare(stream, "refused", core.Use{Block: b.ID, Access: core.Read})
	t.refused(err, "prepare on a stream that is not leased", core.ErrStreamMisuse)
	t.refused(t.Resource.RecordUse(t.ctx, b.ID, stream), "record on a stream that is not leased", core.ErrStreamMisuse)
	t.check(t.Resource.Stats().OpenIntents == 0, "a refused prepare left an intent open")
}

// releasedLease leases its stream in a subtest, whose cleanup ends the lease.
func (t *trial) releasedLease() {
	var stream core.StreamID
	var b core.Block
	t.TB.(*testing.T).Run("lease", func(sub *testing.T) {
		stream = t.Streams(sub)
		b = t.alloc(64, stream)
		t.finish(t.prepare(stream, core.Write, b))
		t.succeed(t.sync(stream), "sync")
	})
	_, err := t.allocate(core.Request{Bytes: 64, Stream: stream})
	t.refused(err, "allocate under a released lease", core.ErrStreamMisuse)
	t.refusedOn(stream, b)
	other := t.Streams(t)
	t.check(other != stream, "stream number %v was given out twice", stream)
	t.finish(t.prepare(other, core.ReadWrite, b))
	t.free(b)
}

// zeroValues calls everything with nothing: a variable that was not set leads to
// an error, not to a crash of the process.
func (t *trial) zeroValues() {
	r := t.Resource
	var id core.BlockID
	want := core.ErrUseAfterFree
	if r.Ordinal() != 0 {
		want = core.ErrStreamMisuse
	}
	t.refusedEverywhere(id, "the zero block", want)
	t.refused(r.FinishUse(t.ctx, core.Ticket{}), "finish of the zero ticket", core.ErrStreamMisuse)
	t.refused(r.AbortUse(t.ctx, core.Ticket{}), "abort of the zero ticket", core.ErrStreamMisuse)
	t.check(r.ReleaseClaim(t.ctx, 0) != nil, "the zero claim was released")
	t.check(r.State(id) == core.Freed, "the zero block is %v", r.State(id))
	t.check(r.FreedOn(noStream) == (core.FreeCounters{}), "a stream that never was has freed %+v", r.FreedOn(noStream))
	if t.tracks() {
		_, err := t.tryPrepare(core.DefaultStream, "", core.Use{})
		t.refused(err, "prepare of the zero use", core.ErrInvalidRequest)
		b := t.alloc(64, core.DefaultStream)
		_, err = t.tryPrepare(core.DefaultStream, "", core.Use{Block: b.ID})
		t.refused(err, "prepare without an access", core.ErrInvalidRequest)
		t.free(b)
	}
}
