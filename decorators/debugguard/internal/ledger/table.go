package ledger

import (
	"math/bits"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// table finds records by generation. It is a hash table of chains through the
// records themselves, changed under its shard's lock and read without one:
// records are pooled, so a reader may be led astray by one that was recycled
// meanwhile, but never out of records. What it finds must be compared again
// under the record's lock, and what it does not find must be looked for with
// find. It is the protocol of the backend's map of blocks.
type table struct {
	buckets atomic.Pointer[[]bucket]
	n       int
}

type bucket = atomic.Pointer[Record]

const (
	firstBuckets = 64
	// strayLimit bounds how far a reader is led astray: chains are short.
	strayLimit = 16
)

// chain mixes the generation: streams that allocate in turn have generations
// at regular distances.
func chain(buckets []bucket, g core.Generation) *bucket {
	return &buckets[uint64(g)*0x9e3779b97f4a7c15>>32&uint64(len(buckets)-1)]
}

// load finds a record without the lock. It may miss one.
func (t *table) load(g core.Generation) *Record {
	buckets := t.buckets.Load()
	if buckets == nil {
		return nil
	}
	rec := chain(*buckets, g).Load()
	for range strayLimit {
		if rec == nil || rec.genState.Load()>>stateBits == uint64(g) {
			return rec
		}
		rec = rec.next.Load()
	}
	return nil
}

// find finds a record under the lock.
func (t *table) find(g core.Generation) *Record {
	if t.n == 0 {
		return nil
	}
	rec := chain(*t.buckets.Load(), g).Load()
	for rec != nil && rec.genState.Load()>>stateBits != uint64(g) {
		rec = rec.next.Load()
	}
	return rec
}

func (t *table) insert(rec *Record) {
	if buckets := t.buckets.Load(); buckets == nil || t.n == len(*buckets) {
		t.grow()
	}
	link(chain(*t.buckets.Load(), rec.Generation()), rec)
	t.n++
}

func link(head *bucket, rec *Record) {
	if next := head.Load(); rec.next.Load() != next {
		rec.next.Store(next)
	}
	head.Store(rec)
}

func (t *table) grow() {
	larger := make([]bucket, max(firstBuckets, 2*t.n))
	t.each(func(rec *Record) { link(chain(larger, rec.Generation()), rec) })
	t.buckets.Store(&larger)
}

// remove finds a record under the lock and removes it.
func (t *table) remove(g core.Generation) *Record {
	if t.n == 0 {
		return nil
	}
	at := chain(*t.buckets.Load(), g)
	for rec := at.Load(); rec != nil; rec = at.Load() {
		if rec.genState.Load()>>stateBits == uint64(g) {
			at.Store(rec.next.Load())
			t.n--
			return rec
		}
		at = &rec.next
	}
	return nil
}

// each calls f, which may move the record to another chain, for every record,
// under the lock.
func (t *table) each(f func(*Record)) { t.everyNth(0, 1, f) }

// chains is how many chains there are; it never falls.
func (t *table) chains() int {
	if buckets := t.buckets.Load(); buckets != nil {
		return len(*buckets)
	}
	return 0
}

// everyNth is each for the records of every nth chain from first on.
func (t *table) everyNth(first, n int, f func(*Record)) {
	buckets := t.buckets.Load()
	if buckets == nil {
		return
	}
	for i := first; i < len(*buckets); i += n {
		for rec := (*buckets)[i].Load(); rec != nil; {
			next := rec.next.Load()
			f(rec)
			rec = next
		}
	}
}

// addresses finds records by an address in their block. Nothing asks for that
// but a launch that hands the device a pointer into no block it declares, so
// a shard builds its index with the first question and keeps it from then on.
//
// A block is entered once, under its class, which is the logarithm of its size
// rounded up, and the number of the unit of that size in which it begins. It
// reaches into the next unit at most, so an address is looked for in two units
// of each class that there is.
type addresses struct {
	heads   []*Record
	n       int
	classes [65]uint32
}

func class(rec *Record) uint { return uint(bits.Len64(max(rec.Bytes, 1) - 1)) }

func (a *addresses) bucket(class uint, unit uint64) *(*Record) {
	return &a.heads[(unit*0x9e3779b97f4a7c15+uint64(class)*0xd6e8feb86659fd93)>>32&uint64(len(a.heads)-1)]
}

func (a *addresses) enter(rec *Record) {
	if a.n == len(a.heads) {
		a.grow()
	}
	a.link(rec)
	a.n++
	a.classes[class(rec)]++
}

func (a *addresses) link(rec *Record) {
	c := class(rec)
	head := a.bucket(c, rec.Ptr>>c)
	rec.neighbour, *head = *head, rec
}

func (a *addresses) grow() {
	old := a.heads
	a.heads = make([]*Record, max(firstBuckets, 2*a.n))
	for _, rec := range old {
		for rec != nil {
			next := rec.neighbour
			a.link(rec)
			rec = next
		}
	}
}

func (a *addresses) remove(rec *Record) {
	c := class(rec)
	for at := a.bucket(c, rec.Ptr>>c); *at != nil; at = &(*at).neighbour {
		if *at == rec {
			*at, rec.neighbour = rec.neighbour, nil
			a.n--
			a.classes[c]--
			return
		}
	}
}

// at calls visit for each record whose block has the address in it.
func (a *addresses) at(ptr uint64, visit func(*Record)) {
	for c, n := range a.classes {
		if n == 0 {
			continue
		}
		unit := ptr >> c
		for back := range min(unit, 1) + 1 {
			for rec := *a.bucket(uint(c), unit-back); rec != nil; rec = rec.neighbour {
				if class(rec) == uint(c) && rec.Ptr>>c == unit-back && rec.Contains(ptr) {
					visit(rec)
				}
			}
		}
	}
}

// Owners returns the live block that an address lies in, and the newest freed
// one of those remembered; nil if there is none.
func (l *Ledger) Owners(ptr uint64) (live, freed *core.Block) {
	for i := range l.shards {
		s := &l.shards[i]
		if s.table.buckets.Load() == nil {
			continue
		}
		s.mu.Lock()
		s.indexed().at(ptr, func(rec *Record) {
			b := rec.Block() // it neither goes nor moves while the shard is locked
			switch {
			case b.State == core.Live:
				live = &b
			case freed == nil || freed.ID.Generation < b.ID.Generation:
				freed = &b
			}
		})
		s.mu.Unlock()
	}
	return live, freed
}

// indexed is the shard's index of addresses, built if this is the first
// question; s.mu must be held.
func (s *shard) indexed() *addresses {
	if s.index == nil {
		s.index = &addresses{}
		s.table.each(s.index.enter)
		for _, stone := range s.tombstones.ring {
			s.index.enter(stone)
		}
	}
	return s.index
}
