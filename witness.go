package fencepost

import (
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
)

// rememberedBlocks is how many released blocks a witness can still name.
const rememberedBlocks = 8192

// witness takes the findings of the runtime and the guard, and turns those of
// the simulated device's oracle, which knows addresses and handles only, into
// findings that name block and stream. Where guard and oracle have seen the same
// bug, it is told once; see [told].
type witness struct {
	sink core.FindingSink
	told told

	mu       sync.Mutex
	stack    core.Resource
	guard    *debugguard.Resource
	streams  *cuda.StreamPool
	released []core.Block
	next     int
}

func newWitness(sink core.FindingSink) *witness { return &witness{sink: sink} }

// Report passes a finding of the guard or the runtime on, unless it is of a bug
// that the oracle has told.
func (w *witness) Report(f core.Finding) {
	if w.told.news(f) {
		w.sink.Report(f)
	}
}

// watch makes the witness remember the blocks of a stack. The base knows the
// addresses that the device sees, so it is the base that is asked for those, and
// the guard for what their owners know.
func (w *witness) watch(r *Runtime) {
	base := core.Base(r.Resource())
	base.Subscribe(w)
	w.mu.Lock()
	w.stack, w.guard, w.streams = base, r.guard, r.streams
	w.mu.Unlock()
}

// Released remembers a block that left the books.
func (w *witness) Released(b core.Block) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.released) < rememberedBlocks {
		w.released = append(w.released, b)
		return
	}
	w.released[w.next] = b
	w.next = (w.next + 1) % rememberedBlocks
}

// blockAt names the block of a finding: the newest released one at the
// address for an access after the free, the one that holds it otherwise. newest
// is the newest block that there is.
func (w *witness) blockAt(f sim.Finding) (victim core.Block, newest core.Generation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ptr := f.BlockPtr
	if ptr == 0 {
		ptr = f.First.Ptr
	}
	consider := func(b core.Block) {
		if ptr-b.ID.Ptr < b.Bytes && b.ID.Generation > victim.ID.Generation {
			victim = b
		}
	}
	if inspector, ok := w.stack.(core.Inspector); ok {
		inspector.Blocks(func(info core.BlockInfo) bool {
			newest = max(newest, info.Block.ID.Generation)
			if !isLate(f) || info.Block.State != core.Live {
				consider(info.Block)
			}
			return true
		})
	}
	if victim.ID.Generation == 0 {
		for _, b := range w.released {
			consider(b)
		}
	}
	return victim, newest
}

// isLate reports whether the finding is about a block that is gone.
func isLate(f sim.Finding) bool { return f.Kind == sim.UseAfterFree || isGone(f) }

// isGone reports whether the finding is of a fault where a block was once.
func isGone(f sim.Finding) bool { return f.Kind == sim.IllegalAddress && f.Other.Op != "" }
