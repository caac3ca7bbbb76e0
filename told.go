package fencepost

import (
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// told is which bugs were told, because two look at the same bytes: the guard
// compares them, the oracle of a simulated device sees each access. Whoever sees a
// bug first tells it, which is mostly the oracle, and what the other one says of
// it later is left out: a finding of the same sort about the same block, and
// damage where the oracle saw an overrun of another block go. What one of them
// says twice is its own affair, except that the oracle tells of each operation once
// what it did wrong with a block.
//
// A finding that is not proven counts for nothing here: it must not hide the proof.
type told struct {
	mu       sync.Mutex
	guards   map[bug]bool
	oracle   map[bug][]culprit
	overruns []overrun
}

// maxTold bounds the memory of it; all is forgotten beyond it.
const maxTold = 4096

// bug is what is wrong with a block.
type bug struct {
	generation core.Generation
	sort       string
}

// culprit is an operation on a stream.
type culprit struct {
	stream driver.Stream
	number uint64
}

// overrun is where an access went that crossed the bound of a block, of blocks
// up to the newest that there was.
type overrun struct {
	low, high uint64
	newest    core.Generation
}

// The sorts of bugs that guard and oracle may have different kinds for.
const (
	lateSort  = "late"
	orderSort = "order"
)

func sortOf(kind core.FindingKind) string {
	switch kind {
	case core.FindingUseAfterFreeWrite, core.FindingUseAfterFreeRead:
		return lateSort
	case core.FindingMissingFence, core.FindingUseBeforeAlloc:
		return orderSort
	}
	return string(kind)
}

// news reports whether a finding of the guard's or the runtime's is to be told.
func (t *told) news(f core.Finding) bool {
	if f.Victim.ID.Generation == 0 || f.Unproven {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	b := bug{f.Victim.ID.Generation, sortOf(f.Kind)}
	if len(t.oracle[b]) > 0 || t.ranOver(f) {
		return false
	}
	if t.guards == nil || len(t.guards) >= maxTold {
		t.guards = map[bug]bool{}
	}
	t.guards[b] = true
	return true
}

// ranOver reports whether the damage of a finding is that of an overrun of another
// block.
func (t *told) ranOver(f core.Finding) bool {
	at := f.Victim.ID.Ptr + uint64(f.Offset)
	return f.BadBytes > 0 && slices.ContainsFunc(t.overruns, func(o overrun) bool {
		return at >= o.low && at < o.high && f.Victim.ID.Generation <= o.newest
	})
}

// oracles is news for a finding of the oracle's.
func (t *told) oracles(found core.Finding, f sim.Finding, by sim.Party, newest core.Generation) bool {
	if found.Victim.ID.Generation == 0 {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	b, who := bug{found.Victim.ID.Generation, sortOf(found.Kind)}, culprit{by.Stream, by.Number}
	if f.Kind == sim.FreeRace {
		b.sort = lateSort
	}
	if f.Kind == sim.OutOfBounds {
		t.noteOverrun(overrun{f.First.Ptr, f.First.Ptr + f.First.Bytes, newest})
	}
	known := t.guards[b] || slices.Contains(t.oracle[b], who)
	if b.sort == lateSort || b.sort == orderSort { // what waits for nothing is both
		known = known || slices.Contains(t.oracle[bug{b.generation, lateSort}], who) || slices.Contains(t.oracle[bug{b.generation, orderSort}], who)
	}
	if t.oracle == nil || len(t.oracle) >= maxTold {
		t.oracle = map[bug][]culprit{}
	}
	if !slices.Contains(t.oracle[b], who) {
		t.oracle[b] = append(t.oracle[b], who) // also if it is not told: the guard may come to see it
	}
	return !known
}

func (t *told) noteOverrun(o overrun) {
	if len(t.overruns) >= maxTold {
		t.overruns = nil
	}
	t.overruns = append(t.overruns, o)
}
