package runtimes_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// A block is sealed over both backends, and one of two devices does not hear of
// the other's.
func TestSealsWorkOverEachBackendAndDevice(t *testing.T) {
	for _, backend := range []fencepost.Backend{fencepost.Async, fencepost.Pool, fencepost.Direct} {
		t.Run(string(backend), func(t *testing.T) {
			here := e2e.OpenDirty(t, fencepost.Config{Resource: backend, Guard: "sample:1"})
			there := e2e.Open(t, fencepost.Config{Resource: backend, Guard: "sample:1", Ordinal: 1})
			var all []core.Block
			for _, rt := range []*fencepost.Runtime{here, there} {
				b := e2e.Allocate(t, rt, 10_000, core.DefaultStream, "table")
				all = append(all, b)
				e2e.Succeed(t, "writing", rt.Driver().MemsetAsync(b.ID.Ptr, 1, 10_000, 0))
				e2e.Succeed(t, "waiting", rt.Streams().Synchronize(t.Context(), core.DefaultStream))
				e2e.Succeed(t, "sealing", rt.Guard().Seal(t.Context(), b.ID))
				e2e.Succeed(t, "checking", rt.Guard().CheckSeals(t.Context()))
			}
			e2e.Succeed(t, "a stray write", here.Driver().MemsetAsync(all[0].ID.Ptr+9000, 2, 1, 0))
			e2e.Free(t, here, all[0])
			e2e.Free(t, there, all[1])
			e2e.Succeed(t, "draining", here.Drain(t.Context()))
			e2e.Succeed(t, "draining", there.Drain(t.Context()))
			found := here.Findings().Recent()
			if len(found) != 1 || found[0].Kind != names.FindingSealedWrite || found[0].Offset != 8192 || found[0].Victim.ID != all[0].ID {
				t.Errorf("found %v", found)
			}
		})
	}
}

// A hunt over the synchronous backend finds what it finds over the other.
func TestAHuntOverDirectFindsDamageAndNothingElse(t *testing.T) {
	rt := e2e.OpenDirty(t, fencepost.Config{Resource: fencepost.Direct, Guard: "hunt:bisect+delay"})
	clean := e2e.Allocate(t, rt, 1000, core.DefaultStream, "clean")
	bad := e2e.Allocate(t, rt, 1000, core.DefaultStream, "bad")
	e2e.Succeed(t, "writing", rt.Driver().MemsetAsync(clean.ID.Ptr, 1, 1000, 0))
	e2e.Succeed(t, "writing too much", rt.Driver().MemsetAsync(bad.ID.Ptr, 1, 1001, 0))
	e2e.Free(t, rt, clean, bad)
	e2e.Succeed(t, "a late write", rt.Driver().MemsetAsync(clean.ID.Ptr+8, 1, 1, 0))
	e2e.Succeed(t, "draining", rt.Drain(t.Context()))
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
	rt := e2e.Open(t, fencepost.Config{Guard: "hunt:bisect+delay"})
	on := e2e.Lease(t, rt, "external")
	ptr := must.Get(rt.Driver().MemAllocAsync(4096, 0, on.Handle()))(t)
	column := cuda.ExternalColumn(cuda.External{Ptr: ptr, Bytes: 4096})
	rec := core.NewPermissiveRecorder(on.ID())
	e2e.Succeed(t, "declaring it", rec.Write(column))
	e2e.Succeed(t, "preparing", rec.Preflight(t.Context(), rt))
	e2e.Succeed(t, "writing", rt.Driver().MemsetAsync(ptr, 1, 4096, on.Handle()))
	e2e.Succeed(t, "committing", rec.Commit(t.Context(), rt))
	e2e.Succeed(t, "another framework's free", rt.Driver().MemFreeAsync(ptr, on.Handle()))
	e2e.Succeed(t, "waiting", rt.Streams().Synchronize(t.Context(), on.ID()))
	e2e.Succeed(t, "draining", rt.Drain(t.Context()))
	if g := rt.Guard().GuardStats(); g.Guarded != 0 || g.Findings != 0 || g.Known != 0 {
		t.Errorf("the guard: %+v", g)
	}
}
