//go:build !race

// The race detector shadows the heap, so memory is measured without it:
// scripts/test runs this test apart.

package debugguard_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

const (
	million = 1_000_000
	// promised is the Go heap of the ledger for a million live blocks with
	// their last four uses, and of a table of its own over somebody's own resource.
	promised = (256 + 96) << 20
)

// heap is the bytes of Go's heap that are in use now.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what a pool kept goes with the second
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestTheLedgerOfAMillionBlocksFitsItsMemory(t *testing.T) {
	for _, c := range []struct {
		streams int
		indexed bool
	}{{1, false}, {64, true}} {
		bytes := heapOf(t, c.streams, c.indexed)
		t.Logf("%d streams, index of addresses %v: %d bytes a block, %d MiB", c.streams, c.indexed, bytes/million, bytes>>20)
		if bytes > promised {
			t.Errorf("%d streams, index of addresses %v: %d MiB, promised are %d", c.streams, c.indexed, bytes>>20, promised>>20)
		}
	}
}

// heapOf is what the ledger takes for a million live blocks on so many streams,
// each used more often than is remembered, with an index of addresses if a
// launch was asked about a pointer.
func heapOf(t *testing.T, streams int, indexed bool) uint64 {
	t.Helper()
	blocks := make([]core.BlockID, million)
	upstream := &null{}
	before := heap()
	guard := must.Get(debugguard.New(upstream, debugguard.Config{Mode: debugguard.Ledger}))(t)
	for i := range blocks {
		block := must.Get(guard.Allocate(ctx, core.Request{Bytes: 512, Stream: core.StreamID(i % streams), Tag: "million"}))(t)
		blocks[i] = block.ID
	}
	names := [...]string{"a", "b", "c", "d", "e"}
	uses := make([]core.Use, 1000)
	for i := 0; i < million; i += len(uses) {
		for j := range uses {
			uses[j] = core.Use{Block: blocks[i+j], Access: core.ReadWrite}
		}
		for _, name := range names {
			launchNamed(t, guard, name, uses)
		}
	}
	if indexed {
		launchPointers(t, guard, blocks[0], blocks[1].Ptr)
	}
	after := heap()
	if g := guard.GuardStats(); g.Known != million || (g.Findings == 1) != indexed {
		t.Errorf("%d blocks known, %d findings", g.Known, g.Findings)
	}
	remembered := 0
	guard.Inspect().Blocks(func(info core.BlockInfo) bool {
		remembered += len(info.Uses)
		return true
	})
	if remembered < 4*million {
		t.Errorf("%d uses are remembered, want 4 of each block", remembered)
	}
	runtime.KeepAlive(blocks)
	return after - min(before, after)
}

func launchNamed(t *testing.T, r core.Resource, name string, uses []core.Use) {
	t.Helper()
	ticket := must.Get(r.PrepareUse(ctx, core.UseRequest{Stream: 1, Launch: name, Uses: uses}))(t)
	must.Do(t, r.FinishUse(context.Background(), ticket))
}

func launchPointers(t *testing.T, r core.Resource, declared core.BlockID, pointers ...uint64) {
	t.Helper()
	ticket, err := r.PrepareUse(ctx, core.UseRequest{Stream: 1, Launch: "pointers", Pointers: pointers,
		Uses: []core.Use{{Block: declared, Access: core.Write}}})
	must.Do(t, err)
	must.Do(t, r.FinishUse(ctx, ticket))
}
