package fencepost_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

// A block is sealed over both backends, and one of two devices does not hear of
// the other's.
func TestSealsWorkOverEachBackendAndDevice(t *testing.T) {
	for _, backend := range []string{fencepost.Async, fencepost.Direct} {
		t.Run(backend, func(t *testing.T) {
			here := openDirty(t, fencepost.Config{Resource: backend, Guard: "sample:1"})
			there := open(t, fencepost.Config{Resource: backend, Guard: "sample:1", Ordinal: 1})
			var all []core.Block
			for _, rt := range []*fencepost.Runtime{here, there} {
				b := allocate(t, rt, 10_000, core.DefaultStream, "table")
				all = append(all, b)
				succeed(t, "writing", rt.Driver().MemsetAsync(b.ID.Ptr, 1, 10_000, 0))
				succeed(t, "waiting", rt.Streams().Synchronize(t.Context(), core.DefaultStream))
				succeed(t, "sealing", rt.Guard().Seal(t.Context(), b.ID))
				succeed(t, "checking", rt.Guard().CheckSeals(t.Context()))
			}
			succeed(t, "a stray write", here.Driver().MemsetAsync(all[0].ID.Ptr+9000, 2, 1, 0))
			free(t, here, all[0])
			free(t, there, all[1])
			succeed(t, "draining", here.Drain(t.Context()))
			succeed(t, "draining", there.Drain(t.Context()))
			found := here.Findings().Recent()
			if len(found) != 1 || found[0].Kind != core.FindingSealedWrite || found[0].Offset != 8192 || found[0].Victim.ID != all[0].ID {
				t.Errorf("found %v", found)
			}
		})
	}
}

// A hunt over the synchronous backend finds what it finds over the other.
func TestAHuntOverDirectFindsDamageAndNothingElse(t *testing.T) {
	rt := openDirty(t, fencepost.Config{Resource: fencepost.Direct, Guard: "hunt:bisect+delay"})
	clean := allocate(t, rt, 1000, core.DefaultStream, "clean")
	bad := allocate(t, rt, 1000, core.DefaultStream, "bad")
	succeed(t, "writing", rt.Driver().MemsetAsync(clean.ID.Ptr, 1, 1000, 0))
	succeed(t, "writing too much", rt.Driver().MemsetAsync(bad.ID.Ptr, 1, 1001, 0))
	free(t, rt, clean, bad)
	succeed(t, "a late write", rt.Driver().MemsetAsync(clean.ID.Ptr+8, 1, 1, 0))
	succeed(t, "draining", rt.Drain(t.Context()))
	var kinds []core.FindingKind
	for _, f := range rt.Findings().Recent() {
		kinds = append(kinds, f.Kind)
	}
	if len(kinds) != 2 || rt.Guard().GuardStats().Quarantine.Blocks != 0 {
		t.Errorf("found %v; the guard %+v", kinds, rt.Guard().GuardStats())
	}
}

// Memory of another framework is neither guarded nor reported, whatever becomes
// of it.
func TestExternalMemoryIsNoneOfTheGuardsBusiness(t *testing.T) {
	rt := open(t, fencepost.Config{Guard: "hunt:bisect+delay"})
	on := lease(t, rt, "external")
	ptr, err := rt.Driver().MemAllocAsync(4096, 0, on.Handle())
	succeed(t, "another framework's allocation", err)
	column := cuda.DLPackColumn(cuda.External{Ptr: ptr, Bytes: 4096})
	rec := core.NewPermissiveRecorder(on.ID())
	succeed(t, "declaring it", rec.Write(column))
	succeed(t, "preparing", rec.Preflight(t.Context(), rt.Runtime))
	succeed(t, "writing", rt.Driver().MemsetAsync(ptr, 1, 4096, on.Handle()))
	succeed(t, "committing", rec.Commit(t.Context(), rt.Runtime))
	succeed(t, "another framework's free", rt.Driver().MemFreeAsync(ptr, on.Handle()))
	succeed(t, "waiting", rt.Streams().Synchronize(t.Context(), on.ID()))
	succeed(t, "draining", rt.Drain(t.Context()))
	if g := rt.Guard().GuardStats(); g.Guarded != 0 || g.Findings != 0 || g.Known != 0 {
		t.Errorf("the guard: %+v", g)
	}
}
