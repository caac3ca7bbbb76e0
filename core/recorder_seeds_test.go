package core_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// The tests of this file are the cases of the original's recorder tests, under
// the names that their comments give, and the three that follow from them.

// empty_commit_is_ok_in_both_modes
func TestEmptyCommitIsOKInBothModes(t *testing.T) {
	rt, fake, _ := fakeRuntime(t)
	succeed(t, "permissive", core.NewPermissiveRecorder(1).Commit(t.Context(), rt))
	succeed(t, "strict", core.NewStrictRecorder(1).Commit(t.Context(), rt))
	mustBe(t, "number of calls of the resource", len(fake.Calls()), 0)
}

// permissive_skips_legacy_silently
func TestPermissiveSkipsUntrackedSilently(t *testing.T) {
	rt, fake, _ := fakeRuntime(t)
	rec := core.NewPermissiveRecorder(1)
	succeed(t, "read legacy", rec.Read(legacy))
	succeed(t, "write external", rec.Write(legacy))
	mustBe(t, "recorded count", rec.RecordedCount(), 0)
	succeed(t, "preflight", rec.Preflight(t.Context(), rt))
	succeed(t, "commit", rec.Commit(t.Context(), rt))
	mustBe(t, "number of calls of the resource", len(fake.Calls()), 0)
}

// strict_rejects_legacy_at_preflight
func TestStrictRejectsUntrackedAtPreflight(t *testing.T) {
	rt, fake, _ := fakeRuntime(t)
	rec := core.NewStrictRecorder(1)
	const text = "untracked buffer rejected"
	misuse(t, "read", rec.Read(legacy), text)
	misuse(t, "preflight", rec.Preflight(t.Context(), rt), text)
	misuse(t, "commit", rec.Commit(t.Context(), rt), text)
	mustBe(t, "number of calls of the resource", len(fake.Calls()), 0)
	succeed(t, "abort", rec.Abort(t.Context(), rt))
}

// preflight_rejects_direct_runtime_before_enqueue
func TestPreflightRejectsDirectRuntimeBeforeEnqueue(t *testing.T) {
	rt := newRuntime(t, newDirect(), nil)
	rec := core.NewStrictRecorder(core.DefaultStream)
	succeed(t, "read", rec.Read(alloc(t, rt, 64)))
	err := rec.Preflight(t.Context(), rt)
	misuse(t, "preflight", err, "does not support cross-stream use tracking")
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v is not errors.ErrUnsupported", err)
	}
	succeed(t, "abort", rec.Abort(t.Context(), rt))
}

// preflight_then_commit_async_runtime
func TestPreflightThenCommitAsyncRuntime(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	rec := core.NewStrictRecorder(1)
	succeed(t, "read", rec.Read(alloc(t, rt, 64)))
	succeed(t, "preflight", rec.Preflight(t.Context(), rt))
	mustBe(t, "open intents before commit", rt.Stats().OpenIntents, uint64(1))
	succeed(t, "commit", rec.Commit(t.Context(), rt))
	mustBe(t, "open intents after commit", rt.Stats().OpenIntents, uint64(0))
	mustBe(t, "launches", rt.Stats().Launches, uint64(1))
}

// commit_rejects_un_preflighted_strict_recorder
func TestCommitRejectsUnPreflightedStrictRecorder(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	for _, rec := range []*core.LaunchRecorder{core.NewStrictRecorder(1), core.NewPermissiveRecorder(1)} {
		succeed(t, "read", rec.Read(alloc(t, rt, 64)))
		misuse(t, "commit", rec.Commit(t.Context(), rt), "without a successful preflight")
		succeed(t, "preflight after the refused commit", rec.Preflight(t.Context(), rt))
		succeed(t, "commit", rec.Commit(t.Context(), rt))
	}
}

// empty_recorder_commit_without_preflight_is_ok
func TestEmptyRecorderCommitWithoutPreflightIsOK(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	rec := core.NewStrictRecorder(1)
	succeed(t, "commit", rec.Commit(t.Context(), rt))
	misuse(t, "second commit", rec.Commit(t.Context(), rt), "ended before")
}

// note_after_preflight_via_standard_method_is_rejected
func TestNoteAfterPreflightIsRejected(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	a, b := alloc(t, rt, 64), alloc(t, rt, 64)
	rec := core.NewStrictRecorder(1)
	succeed(t, "read a", rec.Read(a))
	succeed(t, "preflight", rec.Preflight(t.Context(), rt))
	late := rec.Read(b)
	misuse(t, "late read", late, "recorded after preflight")
	misuse(t, "later write", rec.Write(a), "recorded after preflight")
	mustBe(t, "recorded count", rec.RecordedCount(), 1)
	if err := rec.Commit(t.Context(), rt); !errors.Is(err, late) {
		t.Errorf("commit returned %v, want the very error of the first late use", err)
	}
	mustBe(t, "launches: what was preflighted must be fenced", rt.Stats().Launches, uint64(1))
	mustBe(t, "open intents", rt.Stats().OpenIntents, uint64(0))
}

// pre_preflight_fresh_write_is_accepted
func TestPrePreflightFreshWriteIsAccepted(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	rec := core.NewStrictRecorder(1)
	succeed(t, "read", rec.Read(alloc(t, rt, 64)))
	succeed(t, "write of a fresh output", rec.Write(alloc(t, rt, 64)))
	succeed(t, "preflight", rec.Preflight(t.Context(), rt))
	succeed(t, "commit", rec.Commit(t.Context(), rt))
}

// read_then_write_same_block_dedupes_to_read_write
func TestReadThenWriteSameBlockDedupesToReadWrite(t *testing.T) {
	seen := new(watched)
	rt := seen.runtime(t)
	b := alloc(t, rt, 64)
	rec := core.NewStrictRecorder(1)
	succeed(t, "read", rec.Read(b))
	succeed(t, "write", rec.Write(b))
	mustBe(t, "recorded count", rec.RecordedCount(), 2)
	succeed(t, "preflight", rec.Preflight(t.Context(), rt))
	mustBe(t, "number of prepared uses", len(seen.uses), 1)
	mustBe(t, "prepared access", seen.uses[0].Access, core.ReadWrite)
	succeed(t, "commit", rec.Commit(t.Context(), rt))
}

// dedup_keys_on_full_block_id_not_ptr_alone: drives the
// folding itself, so that no address needs to be reused for real.
func TestDedupKeysOnFullBlockIDNotPtrAlone(t *testing.T) {
	_, fake, _ := fakeRuntime(t)
	a := core.BlockID{Ptr: 0xdead_beef, Generation: 1}
	b := core.BlockID{Ptr: 0xdead_beef, Generation: 2}
	in, err := core.OpenIntent(fake, &core.UseRequest{Uses: []core.Use{{Block: a, Access: core.Read}, {Block: b, Access: core.Write}}})
	succeed(t, "open", err)
	mustBe(t, "number of uses of two generations at one address", len(in.Uses), 2)
	mustBe(t, "first use", use(in.Uses[0]), core.Use{Block: a, Access: core.Read})
	mustBe(t, "second use", use(in.Uses[1]), core.Use{Block: b, Access: core.Write})
	in.Recycle()

	in, err = core.OpenIntent(fake, &core.UseRequest{Uses: []core.Use{{Block: a, Access: core.Read}, {Block: a, Access: core.Write}}})
	succeed(t, "open", err)
	mustBe(t, "number of uses of one generation", len(in.Uses), 1)
	mustBe(t, "its access", in.Uses[0].Access, core.ReadWrite)
	in.Recycle()
}

// read_column_owned_runtime_backed
func TestReadColumnOwnedRuntimeBacked(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	rec := core.NewStrictRecorder(1)
	succeed(t, "read column", rec.Read(column(alloc(t, rt, 64))))
	mustBe(t, "recorded count", rec.RecordedCount(), 1)
	succeed(t, "preflight", rec.Preflight(t.Context(), rt))
	succeed(t, "commit", rec.Commit(t.Context(), rt))
}

func TestStrictRejectsExternalColumns(t *testing.T) {
	rt, _, _ := fakeRuntime(t)
	rec := core.NewStrictRecorder(1)
	misuse(t, "read column", rec.Read(legacy), "DLPack or Arrow device")
	misuse(t, "preflight", rec.Preflight(t.Context(), rt), "untracked buffer rejected")
	succeed(t, "abort", rec.Abort(t.Context(), rt))
}

func TestEmptySliceNeedsNoFence(t *testing.T) {
	rt, fake, _ := fakeRuntime(t)
	for _, rec := range []*core.LaunchRecorder{core.NewStrictRecorder(1), core.NewPermissiveRecorder(1)} {
		succeed(t, "read", rec.Read(empty))
		succeed(t, "preflight", rec.Preflight(t.Context(), rt))
		succeed(t, "write after preflight", rec.Write(empty))
		succeed(t, "commit", rec.Commit(t.Context(), rt))
	}
	mustBe(t, "number of calls of the resource", len(fake.Calls()), 0)
}

func TestEmptyRecorderNeedsNoTrackingResource(t *testing.T) {
	rt := newRuntime(t, newDirect(), nil)
	rec := core.NewStrictRecorder(1)
	succeed(t, "preflight", rec.Preflight(t.Context(), rt))
	succeed(t, "commit", rec.Commit(t.Context(), rt))
}
