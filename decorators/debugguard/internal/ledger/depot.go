package ledger

import (
	"hash/maphash"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

const (
	// stackDepth is how many frames of a stack are kept.
	stackDepth = 32
	// maxStacks is how many different stacks are shared. Beyond it each is
	// kept with its block alone.
	maxStacks = 1 << 14
	// stacksPerTick is how many blocks that are not hunted may keep their stacks
	// in a [Tick]: 1600 a second. Those of the allocation
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

// Tick is the time in which so many stacks, and so many samples, are taken.
const Tick = 10 * time.Millisecond

// Affords reports whether one more stack may be captured in the tick of now.
func (d *Depot) Affords(now monotime.Instant) bool {
	const shift = 16
	was, tick := d.budget.Load(), uint64(now/monotime.Instant(Tick))
	if was>>shift != tick {
		return d.budget.CompareAndSwap(was, tick<<shift|1)
	}
	return was&(1<<shift-1) < stacksPerTick && d.budget.CompareAndSwap(was, was+1)
}

// CouldAfford reports what Affords would, and takes nothing.
func (d *Depot) CouldAfford(now monotime.Instant) bool {
	const shift = 16
	was := d.budget.Load()
	return was>>shift != uint64(now/monotime.Instant(Tick)) || was&(1<<shift-1) < stacksPerTick
}

// maxNames is how many different names of launches are kept. They should come
// from a small fixed set; one beyond the limit is kept as otherName.
const (
	maxNames  = 1 << nameBits
	otherName = "(one of very many names)"
)

// Names numbers strings, so that a use costs four bytes for its launch's name. The
// empty name is number 0. Numbers are read without a lock from a map that is never
// changed: when new names were asked for as often as there are names, a newer copy
// takes its place.
type Names struct {
	shared atomic.Pointer[map[string]uint32]
	texts  atomic.Pointer[[]string] // by number

	mu      sync.Mutex
	numbers map[string]uint32
	missed  int // since the copy
}

func newNames() *Names {
	n := &Names{numbers: map[string]uint32{"": 0, otherName: 1}}
	n.texts.Store(&[]string{"", otherName})
	n.share()
	return n
}

// Number is the number of a name, which it gets if it has none.
func (n *Names) Number(text string) uint32 {
	if text == "" {
		return 0
	}
	shared := *n.shared.Load()
	if number, ok := shared[text]; ok {
		return number
	}
	if len(shared) == maxNames {
		return shared[otherName]
	}
	return n.add(text)
}

func (n *Names) add(text string) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	number, ok := n.numbers[text]
	if texts := *n.texts.Load(); !ok && len(texts) < maxNames {
		number = uint32(len(texts))
		texts = append(texts, text) // behind what readers see
		n.texts.Store(&texts)
		n.numbers[text] = number
	} else if !ok {
		number = n.numbers[otherName]
	}
	if n.missed++; n.missed >= len(n.numbers) || len(n.numbers) == maxNames {
		n.share()
	}
	return number
}

// share lets all names be read without the lock; mu must be held.
func (n *Names) share() {
	shared := maps.Clone(n.numbers)
	n.shared.Store(&shared)
	n.missed = 0
}

// name is the text of a number.
func (n *Names) name(number uint32) string { return (*n.texts.Load())[number] }
