package debugguard

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// maxNames is how many different names of launches are kept. They should come
// from a small fixed set; one beyond the limit is kept as otherName.
const (
	maxNames  = 1 << 16
	otherName = "(one of very many names)"
)

// names numbers strings, so that a use costs four bytes for its launch's name.
// It is a hash table that only grows, read without a lock; what a reader does
// not find he looks for under it. The empty name is number 0.
type names struct {
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

func newNames() *names {
	n := &names{seed: maphash.MakeSeed()}
	n.slots.Store(ptr(make([]atomic.Pointer[name], 64)))
	n.known.Store(&[]string{"", otherName})
	return n
}

func ptr[T any](v T) *T { return &v }

// number is the number of a name, which it gets if it has none.
func (n *names) number(text string) uint32 {
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

func (n *names) add(hash uint64, text string) uint32 {
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

func (n *names) grow(slots []atomic.Pointer[name]) []atomic.Pointer[name] {
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
func (n *names) name(number uint32) string { return (*n.known.Load())[number] }
