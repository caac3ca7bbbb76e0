package coretest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
)

// ReapPending is noted and releases nothing; see [Fake.Pass].
func (f *Fake) ReapPending(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begin("ReapPending", "")
}

// Drain passes all pending frees.
func (f *Fake) Drain(context.Context) error {
	f.mu.Lock()
	err := f.begin("Drain", "")
	f.mu.Unlock()
	if err == nil {
		f.Pass()
	}
	return err
}

// State is the block's state.
func (f *Fake) State(id core.BlockID) core.BlockState {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b, ok := f.blocks[id.Generation]; ok {
		return b.State
	}
	return core.Freed
}

// Stats is the fake's books.
func (f *Fake) Stats() core.Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stats
}

// FreedOn is the free counters of the stream.
func (f *Fake) FreedOn(id core.StreamID) core.FreeCounters {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.freeCounters[id]
}

// Subscribe adds a listener.
func (f *Fake) Subscribe(l core.Listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners = append(f.listeners, l)
}

// Inspect tells of the blocks that are not released, oldest first, and of the
// unit of isolated ones.
func (f *Fake) Inspect() core.Inspector { return fakeInspector{core.Unsupported{}.Inspect(), f} }

type fakeInspector struct {
	core.Inspector
	fake *Fake
}

func (i fakeInspector) IsolationGranularity() uint64 { return i.fake.granularity() }

func (i fakeInspector) Blocks(yield func(core.BlockInfo) bool) {
	f := i.fake
	f.mu.Lock()
	infos := make([]core.BlockInfo, 0, len(f.blocks))
	for _, b := range f.blocks {
		infos = append(infos, core.BlockInfo{Block: b.Block})
	}
	f.mu.Unlock()
	slices.SortFunc(infos, func(a, b core.BlockInfo) int {
		return cmp.Compare(a.Block.ID.Generation, b.Block.ID.Generation)
	})
	for _, info := range infos {
		if !yield(info) {
			return
		}
	}
}

// Ordinal is the fake's device.
func (f *Fake) Ordinal() int { return f.ordinal }

// Features is use tracking in stream order, and isolation after Isolate.
func (f *Fake) Features() core.Features {
	features := core.UseTracking | core.StreamOrdered
	if f.granularity() != 0 {
		features |= core.Isolation
	}
	return features
}

// Unwrap is nil: the fake is a backend.
func (f *Fake) Unwrap() core.Resource { return nil }

// String is "fake:ordinal".
func (f *Fake) String() string { return fmt.Sprintf("fake:%d", f.ordinal) }

// Withhold takes a live block out of what the peaks of live memory are of.
func (f *Fake) Withhold(id core.BlockID, _ core.BlockState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b, ok := f.blocks[id.Generation]; ok && b.State == core.Live && !b.withheld {
		b.withheld = true
		f.withheld = f.withheld.Add(amount(b))
	}
}
