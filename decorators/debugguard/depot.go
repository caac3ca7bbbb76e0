package debugguard

import (
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

const (
	// stackDepth is how many frames of a stack are kept.
	stackDepth = 32
	// maxStacks is how many different stacks are shared. Beyond it each is
	// kept with its block alone.
	maxStacks = 1 << 14
	// stacksPerTick is how many blocks that are not hunted may keep their stacks
	// in a tick of the ledger's clock: 1600 a second. Those of the allocation
	// and of the free take some 5 µs together, so that is less than a hundredth
	// of a processor.
	stacksPerTick = 16
)

// depot keeps each stack once, however many blocks were allocated there.
type depot struct {
	seed   maphash.Seed
	mu     sync.RWMutex
	known  map[uint64]core.Stack
	budget atomic.Uint64 // the tick, and below it the stacks captured in it
}

func newDepot() *depot { return &depot{seed: maphash.MakeSeed(), known: map[uint64]core.Stack{}} }

// capture returns the caller's stack, without its first skip frames.
func (d *depot) capture(skip int) core.Stack {
	var pcs [stackDepth]uintptr
	n := runtime.Callers(skip+2, pcs[:])
	hash := maphash.Comparable(d.seed, pcs)
	d.mu.RLock()
	known := d.known[hash]
	d.mu.RUnlock()
	if slices.Equal(known, pcs[:n]) {
		return known
	}
	fresh := slices.Clone(core.Stack(pcs[:n]))
	d.mu.Lock()
	defer d.mu.Unlock()
	if known == nil && len(d.known) < maxStacks {
		d.known[hash] = fresh
	}
	return fresh
}

// affords reports whether one more stack may be captured in this tick.
func (d *depot) affords(now instant) bool {
	const shift = 16
	was := d.budget.Load()
	if was>>shift != uint64(now) {
		return d.budget.CompareAndSwap(was, uint64(now)<<shift|1)
	}
	return was&(1<<shift-1) < stacksPerTick && d.budget.CompareAndSwap(was, was+1)
}
