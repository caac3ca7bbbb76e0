package cuda_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// These are the original's recorder tests, over real resources and memory.

// owned is a runtime-backed slice that is freed at the end.
func (b *bench) owned(on *cuda.Lease) *cuda.Slice[uint32] {
	b.Helper()
	s, err := cuda.Alloc[uint32](ctx, b.Memory, 64, cuda.AllocOptions{Stream: on.ID(), Tag: "test"})
	must(b, err)
	b.Cleanup(func() { _ = s.Free(ctx) }) // a test may have freed it
	return s
}

// legacy is a slice allocated around the runtime.
func (b *bench) legacy() *cuda.Slice[uint32] {
	b.Helper()
	s, err := cuda.Alloc[uint32](ctx, cuda.NewUntrackedManager(b.Driver, b.Streams, 0), 64, cuda.AllocOptions{})
	must(b, err)
	b.Cleanup(func() { must(b, s.Free(ctx)) })
	return s
}

func TestEmptyCommitIsOKInBothModes(t *testing.T) {
	b := newBench(t)
	must(t, core.NewStrictRecorder(core.DefaultStream).Commit(ctx, b.Runtime))
	must(t, core.NewPermissiveRecorder(core.DefaultStream).Commit(ctx, b.Runtime))
	equal(t, "events recorded", b.faults.Calls(drivertest.EventRecord), 0)
}

func TestPermissiveSkipsUntrackedSilently(t *testing.T) {
	b := newBench(t)
	rec := core.NewPermissiveRecorder(core.DefaultStream)
	must(t, rec.Read(b.legacy()))
	must(t, rec.Write(cuda.ExternalColumn(cuda.External{Ptr: 4096, Bytes: 4})))
	equal(t, "recorded", rec.RecordedCount(), 0)
	must(t, rec.Preflight(ctx, b.Runtime))
	must(t, rec.Commit(ctx, b.Runtime))
}

func TestStrictRejectsUntrackedAtPreflight(t *testing.T) {
	b := newBench(t)
	rec := core.NewStrictRecorder(core.DefaultStream)
	misuse(t, "read", rec.Read(b.legacy()))
	misuse(t, "preflight", rec.Preflight(ctx, b.Runtime))
	must(t, rec.Abort(ctx, b.Runtime))
}

func TestPreflightRejectsDirectRuntimeBeforeEnqueue(t *testing.T) {
	b := newBench(t)
	direct := cuda.NewDirectResource(b.Driver)
	rt, err := core.NewRuntime(direct, nil)
	must(t, err)
	block, err := rt.Allocate(ctx, core.Request{Bytes: 64})
	must(t, err)
	rec := core.NewStrictRecorder(core.DefaultStream)
	must(t, rec.Read(block))
	err = rec.Preflight(ctx, rt)
	misuse(t, "preflight", err)
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v does not say that it is unsupported", err)
	}
	must(t, rec.Abort(ctx, rt))
	_, err = rt.Deallocate(ctx, block.ID)
	must(t, err)
}

func TestPreflightThenCommitAsyncRuntime(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	slice := b.owned(s[0])
	rec := core.NewStrictRecorder(s[1].ID())
	must(t, rec.Write(slice))
	must(t, rec.Preflight(ctx, b.Runtime))
	equal(t, "waits before the launch", b.faults.Calls(drivertest.StreamWait), 1)
	must(t, b.Driver.MemsetAsync(slice.Ptr(), 1, slice.Bytes(), s[1].Handle()))
	must(t, rec.Commit(ctx, b.Runtime))
	equal(t, "launches", b.Runtime.Stats().Launches, 1)
}

func TestCommitRejectsUnPreflightedStrictRecorder(t *testing.T) {
	b := newBench(t)
	rec := core.NewStrictRecorder(core.DefaultStream)
	must(t, rec.Read(b.owned(b.leases(1)[0])))
	misuse(t, "commit", rec.Commit(ctx, b.Runtime))
	must(t, rec.Abort(ctx, b.Runtime))
}

func TestEmptyRecorderCommitWithoutPreflightIsOK(t *testing.T) {
	b := newBench(t)
	empty, err := cuda.Alloc[uint32](ctx, b.Memory, 0, cuda.AllocOptions{})
	must(t, err)
	rec := core.NewStrictRecorder(core.DefaultStream)
	must(t, rec.Write(empty))
	must(t, rec.Commit(ctx, b.Runtime))
}

func TestNoteAfterPreflightIsRejected(t *testing.T) {
	b := newBench(t, deviceOrdered)
	s := b.leases(2)
	early, late := b.owned(s[0]), b.owned(s[0])
	rec := core.NewStrictRecorder(s[1].ID())
	must(t, rec.Write(early))
	must(t, rec.Preflight(ctx, b.Runtime))
	first := rec.Read(late)
	misuse(t, "late use", first)
	must(t, b.Driver.MemsetAsync(early.Ptr(), 1, early.Bytes(), s[1].Handle()))
	if err := rec.Commit(ctx, b.Runtime); !errors.Is(err, first) {
		t.Errorf("commit: %v, want the late use's error", err)
	}
	before := b.faults.Calls(drivertest.StreamWait)
	must(t, early.Free(ctx))
	equal(t, "waits of the free of what was preflighted", b.faults.Calls(drivertest.StreamWait)-before, 1)
}

func TestPrePreflightFreshWriteIsAccepted(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	rec := core.NewStrictRecorder(l.ID())
	must(t, rec.Write(b.owned(l)))
	must(t, rec.Preflight(ctx, b.Runtime))
	must(t, rec.Commit(ctx, b.Runtime))
}

func TestReadThenWriteSameBlockDedupesToReadWrite(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	slice := b.owned(l)
	view, err := slice.View(8, 16)
	must(t, err)
	ticket, err := b.Runtime.PrepareUse(ctx, core.UseRequest{Stream: l.ID(), Uses: []core.Use{slice.Use(core.Read), view.Use(core.Write)}})
	must(t, err)
	uses := ticket.Intent().Uses
	if len(uses) != 1 || uses[0].Access != core.ReadWrite {
		t.Errorf("uses: %+v", uses)
	}
	must(t, b.Runtime.FinishUse(ctx, ticket))
	must(t, errors.Join(view.Free(ctx), slice.Free(ctx)))
}

func TestDedupKeysOnFullBlockIDNotPtrAlone(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	first := b.alloc(l, 256)
	b.free(first)
	second := b.alloc(l, 256) // the pool hands out the same address
	equal(t, "address", second.ID.Ptr, first.ID.Ptr)
	rec := core.NewStrictRecorder(l.ID())
	must(t, rec.Read(first))
	must(t, rec.Write(second))
	expect.Error(t, rec.Preflight(ctx, b.Runtime), core.ErrUseAfterFree, "a stale handle at the same address")
	must(t, rec.Abort(ctx, b.Runtime))
	b.free(second)
}

func TestReadColumnOwnedRuntimeBacked(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	slice := b.owned(l)
	column := cuda.OwnedColumn(slice)
	equal(t, "identity", column.BlockID(), slice.BlockID())
	rec := core.NewStrictRecorder(l.ID())
	must(t, rec.Read(column))
	equal(t, "recorded", rec.RecordedCount(), 1)
	must(t, rec.Preflight(ctx, b.Runtime))
	must(t, rec.Commit(ctx, b.Runtime))
}

func TestStrictRejectsExternalColumns(t *testing.T) {
	b := newBench(t)
	for _, c := range []*cuda.Column{cuda.ExternalColumn(cuda.External{Ptr: 4096, Bytes: 64})} {
		if !c.IsExternal() || c.BlockID().Generation != core.NoBlock {
			t.Errorf("the column is not external: %+v", c.BlockID())
		}
		rec := core.NewStrictRecorder(core.DefaultStream)
		misuse(t, "read", rec.Read(c))
		misuse(t, "preflight", rec.Preflight(ctx, b.Runtime))
		must(t, rec.Abort(ctx, b.Runtime))
	}
}

func TestFirstUseNeedsTrackedMemory(t *testing.T) {
	b := newBench(t)
	_, err := b.Runtime.PrepareFirstUse(ctx, b.legacy(), core.DefaultStream, core.Write)
	misuse(t, "first use of untracked memory", err)
}
