package logging

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

// DefaultRingSize is the number of records that a [Ring] of size zero keeps.
// They take 1 MiB.
const DefaultRingSize = 4096

// Ring is a [Sink] that keeps the newest records in memory. It allocates
// nothing after NewRing. It is safe for concurrent use.
//
// # How it works
//
// A writer claims a slot by one atomic increment and fills it under that
// slot's own lock, so writers meet on a lock only if one laps the ring while
// another is still inside, or if a snapshot reads that very slot. A slot
// remembers the claim it was filled for: a writer that was overtaken by a
// whole round leaves the newer record alone.
type Ring struct {
	mask  uint64
	slots []slot
	_     [64]byte // the cursor, written by all, has a cache line of its own
	next  atomic.Uint64
	_     [56]byte
}

type slot struct {
	mu sync.Mutex
	// claim is the number of the write that filled the slot, from 1; zero is
	// an empty slot.
	claim  uint64
	record Record
	_      [24]byte // makes 256 bytes: neighbours share no cache line
}

var _ Sink = (*Ring)(nil)

// NewRing returns a ring of size records, rounded up to a power of two. A
// size of zero or less means [DefaultRingSize]. A record takes 256 bytes.
func NewRing(size int) *Ring {
	if size <= 0 {
		size = DefaultRingSize
	}
	size = 1 << bits.Len(uint(size-1))
	return &Ring{mask: uint64(size - 1), slots: make([]slot, size)}
}

// Put keeps r in the place of the oldest record.
func (g *Ring) Put(r Record) {
	claim := g.next.Add(1)
	s := &g.slots[claim&g.mask]
	s.mu.Lock()
	if s.claim < claim {
		s.claim = claim
		s.record = r
	}
	s.mu.Unlock()
}

// Snapshot returns a copy of the records kept, oldest first by sequence
// number. Records put meanwhile may or may not be in it.
func (g *Ring) Snapshot() []Record {
	records := make([]Record, 0, min(g.Total(), uint64(len(g.slots))))
	for i := range g.slots {
		s := &g.slots[i]
		s.mu.Lock()
		if s.claim != 0 {
			records = append(records, s.record)
		}
		s.mu.Unlock()
	}
	slices.SortStableFunc(records, bySeq)
	return records
}

func bySeq(a, b Record) int { return cmp.Compare(a.Seq, b.Seq) }

// Cap is the number of records that the ring can keep.
func (g *Ring) Cap() int { return len(g.slots) }

// Total is the number of records ever put; all but the last [Ring.Cap] are
// overwritten.
func (g *Ring) Total() uint64 { return g.next.Load() }

// Flush does nothing: a record is kept as soon as Put returns.
func (g *Ring) Flush(context.Context) error { return nil }

// Close does nothing: a ring runs nothing, and can be read at any time.
func (g *Ring) Close(context.Context) error { return nil }

// Dropped is zero: a ring takes every record, and giving up the oldest for
// the newest is its purpose.
func (g *Ring) Dropped() uint64 { return 0 }
