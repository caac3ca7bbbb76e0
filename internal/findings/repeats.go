package findings

import (
	"math"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// repeats remembers which bugs were reported, because two look at the same bytes:
// the guard compares them, the oracle of a simulated device sees each access.
// The first of the two to see a bug reports it, which is mostly the oracle, and what
// the other says of it later is left out: a finding of the same sort about the same
// block, and damage in a place where the oracle saw an overrun of another block
// go. What the guard says twice is reported twice; the oracle reports of each
// operation once what it did wrong with a block.
//
// A finding that is not proven counts for nothing here: it must not hide the proof.
type repeats struct {
	mu       sync.Mutex
	guard    map[bug]bool
	oracle   map[bug][]culprit
	overruns []overrun
}

// maxRepeats bounds the memory of it; all is forgotten beyond it.
const maxRepeats = 4096

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
	case names.FindingUseAfterFreeWrite, names.FindingUseAfterFreeRead:
		return lateSort
	case names.FindingMissingFence, names.FindingUseBeforeAlloc:
		return orderSort
	}
	return string(kind)
}

// seenByOracle reports whether a finding of the guard's or the runtime's is of a bug
// that the oracle has reported, and remembers it otherwise.
func (r *repeats) seenByOracle(f core.Finding) bool {
	if f.Victim.ID.Generation == 0 || f.Unproven {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := bug{f.Victim.ID.Generation, sortOf(f.Kind)}
	if len(r.oracle[b]) > 0 || r.ranOver(f) {
		return true
	}
	if r.guard == nil || len(r.guard) >= maxRepeats {
		r.guard = map[bug]bool{}
	}
	r.guard[b] = true
	return false
}

// ranOver reports whether the damage of a finding is that of an overrun of another
// block.
func (r *repeats) ranOver(f core.Finding) bool {
	at := f.Victim.ID.Ptr + uint64(f.Offset)
	return f.BadBytes > 0 && slices.ContainsFunc(r.overruns, func(o overrun) bool {
		return at >= o.low && at < o.high && f.Victim.ID.Generation <= o.newest
	})
}

// seenByGuard reports whether a finding of the oracle's is of a bug that the guard, or
// the oracle itself, has reported, and remembers it.
func (r *repeats) seenByGuard(found translated, f sim.Finding) bool {
	if found.Victim.ID.Generation == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := bug{found.Victim.ID.Generation, sortOf(found.Kind)}
	if f.Kind == sim.FreeRace {
		b.sort = lateSort
	}
	if f.Kind == sim.OutOfBounds {
		r.noteOverrun(overrun{f.First.Ptr, f.First.Ptr + f.First.Bytes, found.newest})
	}
	who := culpritOf(found.by)
	if isConsequence(f) {
		r.blame(b, another)
		return true
	}
	known := r.guard[b] || slices.ContainsFunc(b.others(f), func(as bug) bool {
		return slices.Contains(r.oracle[as], who)
	})
	r.blame(b, who) // also of what is left out: the guard may see it too
	for _, p := range [...]sim.Party{f.First, f.Other} {
		if p.How != "" {
			r.blame(b, culpritOf(p))
		}
	}
	return known
}

// another is no operation: the bug is told of by another word.
var another = culprit{number: math.MaxUint64}

func (r *repeats) blame(b bug, who culprit) {
	if r.oracle == nil || len(r.oracle) >= maxRepeats {
		r.oracle = map[bug][]culprit{}
	}
	if !slices.Contains(r.oracle[b], who) {
		r.oracle[b] = append(r.oracle[b], who)
	}
}

func culpritOf(p sim.Party) culprit { return culprit{p.Stream, p.Number} }

// isConsequence reports whether an access that nothing orders with the allocation or the free of
// its block is one that its launch does not declare. The oracle tells of that, which is the cause.
func isConsequence(f sim.Finding) bool {
	return (f.Kind == sim.UseBeforeAlloc || f.Kind == sim.FreeRace) && f.First.How != ""
}

// others are what one access may be called: an access that waits for nothing is late, out of order,
// and not declared. A race between two launches is told of an access that was not declared, too: it
// names the other one.
func (b bug) others(f sim.Finding) []bug {
	switch {
	case b.sort != lateSort && b.sort != orderSort && b.sort != names.FindingUndeclaredAccess:
		return []bug{b}
	case f.Kind == sim.Race && !f.First.Guard && !f.Other.Guard:
		return []bug{{b.generation, lateSort}, {b.generation, orderSort}}
	}
	return []bug{{b.generation, lateSort}, {b.generation, orderSort}, {b.generation, names.FindingUndeclaredAccess}}
}

func (r *repeats) noteOverrun(o overrun) {
	if len(r.overruns) >= maxRepeats {
		r.overruns = nil
	}
	r.overruns = append(r.overruns, o)
}
