package ledger

import (
	"math/bits"

	"github.com/fencepost-gpu/fencepost/core"
)

// firstBuckets is how many buckets an index has at first.
const firstBuckets = 64

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

// widen makes the bounds include a block's, which mostly they do.
func (l *Ledger) widen(low, high uint64) {
	for old := l.low.Load(); low < old && !l.low.CompareAndSwap(old, low); {
		old = l.low.Load()
	}
	for old := l.high.Load(); high > old && !l.high.CompareAndSwap(old, high); {
		old = l.high.Load()
	}
}

// MayHold reports whether an address lies between those of the blocks that were ever known. It
// takes no lock.
func (l *Ledger) MayHold(ptr uint64) bool { return ptr >= l.low.Load() && ptr < l.high.Load() }

// Owners returns the live block that an address lies in, and the newest freed
// one of those remembered; nil if there is none.
func (l *Ledger) Owners(ptr uint64) (live, freed *core.Block) {
	l.index()
	for _, s := range l.all() {
		s.mu.Lock()
		s.index.at(ptr, func(rec *Record) {
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

// index builds the shards' indexes of addresses, if this is the first question. What comes meanwhile enters
// itself.
func (l *Ledger) index() {
	if l.indexed.Load() {
		return
	}
	l.indexing.Lock()
	defer l.indexing.Unlock()
	if l.indexed.Load() {
		return
	}
	l.sharing.Lock() // a lane that is added later has one from the beginning
	l.hasIndex = true
	for _, s := range l.all() {
		s.mu.Lock()
		s.index = &addresses{}
		for _, stone := range s.tombstones.ring {
			s.index.enter(stone)
		}
		s.mu.Unlock()
	}
	l.sharing.Unlock()
	for g, rec := range l.All {
		l.enterLater(g, rec)
	}
	l.indexed.Store(true)
}

// enterLater enters a record that was there before its shard had an index.
func (l *Ledger) enterLater(g core.Generation, rec *Record) {
	if !rec.Lock(g) {
		return
	}
	s := l.all()[rec.shard]
	rec.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if rec.isOf(g) && rec.State() != core.Freed {
		s.enterIndex(rec)
	}
}

// enterIndex enters a record that is not there yet, if there is an index; s.mu must be held.
func (s *Shard) enterIndex(rec *Record) {
	if s.index != nil && !rec.indexed {
		rec.indexed = true
		s.index.enter(rec)
	}
}
