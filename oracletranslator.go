package fencepost

import (
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
)

// rememberedBlocks is how many released blocks the translator can still name.
const rememberedBlocks = 8192

// oracleTranslator takes the findings of the runtime and the guard, and turns those of
// the simulated device's oracle, which knows addresses and handles only, into
// findings that name block and stream. Where guard and oracle have seen the same
// bug, it is told once; see [told].
type oracleTranslator struct {
	sink core.FindingSink
	told told

	mu       sync.Mutex
	stack    core.Resource
	guard    *debugguard.Resource
	streams  *cuda.StreamPool
	released []core.Block
	next     int
}

func newOracleTranslator(sink core.FindingSink) *oracleTranslator {
	return &oracleTranslator{sink: sink}
}

// Report passes a finding of the guard or the runtime on, unless it is of a bug
// that the oracle has told.
func (t *oracleTranslator) Report(f core.Finding) {
	if t.told.news(f) {
		t.sink.Report(f)
	}
}

// watch makes the translator remember the blocks of a stack. The base knows the
// addresses that the device sees, so it is the base that is asked for those, and
// the guard for what their owners know.
func (t *oracleTranslator) watch(r *Runtime) {
	base := core.Base(r.Resource())
	base.Subscribe(t)
	t.mu.Lock()
	t.stack, t.guard, t.streams = base, r.guard, r.streams
	t.mu.Unlock()
}

// Released remembers a block that left the books.
func (t *oracleTranslator) Released(b core.Block) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.released) < rememberedBlocks {
		t.released = append(t.released, b)
		return
	}
	t.released[t.next] = b
	t.next = (t.next + 1) % rememberedBlocks
}

// blockAt names the block of a finding: the newest released one at the
// address for an access after the free, the one that holds it otherwise. newest
// is the newest block that there is.
func (t *oracleTranslator) blockAt(f sim.Finding) (victim core.Block, newest core.Generation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ptr := f.BlockPtr
	if ptr == 0 {
		ptr = f.First.Ptr
	}
	consider := func(b core.Block) {
		if ptr-b.ID.Ptr < b.Bytes && b.ID.Generation > victim.ID.Generation {
			victim = b
		}
	}
	if inspector, ok := t.stack.(core.Inspector); ok {
		inspector.Blocks(func(info core.BlockInfo) bool {
			newest = max(newest, info.Block.ID.Generation)
			if !isLate(f) || info.Block.State != core.Live {
				consider(info.Block)
			}
			return true
		})
	}
	if victim.ID.Generation == 0 {
		for _, b := range t.released {
			consider(b)
		}
	}
	return victim, newest
}

// isLate reports whether the finding is about a block that is gone.
func isLate(f sim.Finding) bool { return f.Kind == sim.UseAfterFree || isGone(f) }

// isGone reports whether the finding is of a fault where a block was once.
func isGone(f sim.Finding) bool { return f.Kind == sim.IllegalAddress && f.Other.Op != "" }
