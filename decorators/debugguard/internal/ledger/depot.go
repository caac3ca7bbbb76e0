package ledger

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

// Depot keeps each stack once, however many blocks were allocated there.
type Depot struct {
	seed   maphash.Seed
	mu     sync.RWMutex
	known  map[uint64]core.Stack
	budget atomic.Uint64 // the tick, and below it the stacks captured in it
}

func newDepot() *Depot { return &Depot{seed: maphash.MakeSeed(), known: map[uint64]core.Stack{}} }

// Capture returns the caller's stack, without its first skip frames.
func (d *Depot) Capture(skip int) core.Stack {
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

// Affords reports whether one more stack may be captured in this tick.
func (d *Depot) Affords(now Instant) bool {
	const shift = 16
	was := d.budget.Load()
	if was>>shift != uint64(now) {
		return d.budget.CompareAndSwap(was, uint64(now)<<shift|1)
	}
	return was&(1<<shift-1) < stacksPerTick && d.budget.CompareAndSwap(was, was+1)
}

// maxNames is how many different names of launches are kept. They should come
// from a small fixed set; one beyond the limit is kept as otherName.
const (
	maxNames  = 1 << 16
	otherName = "(one of very many names)"
)

// Names numbers strings, so that a use costs four bytes for its launch's name.
// It is a hash table that only grows, read without a lock; what a reader does
// not find he looks for under it. The empty name is number 0.
type Names struct {
	slots atomic.Pointer[[]atomic.Pointer[name]]
	known atomic.Pointer[[]string] // by number
	full  atomic.Bool
	mu    sync.Mutex
	seed  maphash.Seed
}

type name struct {
	text   string
	number uint32
}

func newNames() *Names {
	n := &Names{seed: maphash.MakeSeed()}
	n.slots.Store(ptr(make([]atomic.Pointer[name], 64)))
	n.known.Store(&[]string{"", otherName})
	return n
}

func ptr[T any](v T) *T { return &v }

// Number is the number of a name, which it gets if it has none.
func (n *Names) Number(text string) uint32 {
	if text == "" {
		return 0
	}
	hash := maphash.String(n.seed, text)
	if known := find(*n.slots.Load(), hash, text); known != nil {
		return known.number
	}
	if n.full.Load() {
		return 1
	}
	return n.add(hash, text)
}

// find probes from the place of the hash on; half of the slots are empty.
func find(slots []atomic.Pointer[name], hash uint64, text string) *name {
	for i := hash; ; i++ {
		if known := slots[i&uint64(len(slots)-1)].Load(); known == nil || known.text == text {
			return known
		}
	}
}

func (n *Names) add(hash uint64, text string) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	slots, known := *n.slots.Load(), *n.known.Load()
	if found := find(slots, hash, text); found != nil {
		return found.number
	}
	if len(known) == maxNames {
		n.full.Store(true)
		return 1
	}
	if 2*len(known) >= len(slots) {
		slots = n.grow(slots)
	}
	added := &name{text: text, number: uint32(len(known))}
	known = append(known, text) // behind what readers see
	n.known.Store(&known)
	put(slots, hash, added)
	return added.number
}

func (n *Names) grow(slots []atomic.Pointer[name]) []atomic.Pointer[name] {
	larger := make([]atomic.Pointer[name], 4*len(slots))
	for i := range slots {
		if known := slots[i].Load(); known != nil {
			put(larger, maphash.String(n.seed, known.text), known)
		}
	}
	n.slots.Store(&larger)
	return larger
}

func put(slots []atomic.Pointer[name], hash uint64, added *name) {
	for i := hash; ; i++ {
		if slot := &slots[i&uint64(len(slots)-1)]; slot.CompareAndSwap(nil, added) {
			return
		}
	}
}

// name is the text of a number.
func (n *Names) name(number uint32) string { return (*n.known.Load())[number] }
