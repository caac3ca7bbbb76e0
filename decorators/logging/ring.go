package logging

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"sync"
)

// DefaultRingSize is the number of records that a [Ring] of size zero keeps.
// They take 1 MiB.
const DefaultRingSize = 4096

// Ring is a [Sink] that keeps the newest records in memory. It allocates
// nothing after NewRing. It is safe for concurrent use.
//
// # How it works
//
// A record's sequence number is its place: writers share no cursor, and each
// fills its slot under that slot's own lock, so they meet only if one laps the
// ring while another is still inside, or if a snapshot reads that very slot.
// A writer that was overtaken by a whole round leaves the newer record alone.
//
// Sequence numbers are the process's. A ring that gets the records of one of
// several resources therefore keeps its share of the size, and somewhat older
// records beside.
type Ring struct {
	mask  uint64
	slots []slot
}

type slot struct {
	mu sync.Mutex
	// puts counts the records that came here; zero is an empty slot.
	puts   uint64
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
	s := &g.slots[r.Seq&g.mask]
	s.mu.Lock()
	if s.puts++; s.puts == 1 || s.record.Seq <= r.Seq {
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
		if s.puts != 0 {
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
// overwritten. It looks at every slot.
func (g *Ring) Total() uint64 {
	total := uint64(0)
	for i := range g.slots {
		s := &g.slots[i]
		s.mu.Lock()
		total += s.puts
		s.mu.Unlock()
	}
	return total
}

// Flush does nothing: a record is kept as soon as Put returns.
func (g *Ring) Flush(context.Context) error { return nil }

// Close does nothing: a ring runs nothing, and can be read at any time.
func (g *Ring) Close(context.Context) error { return nil }

// Dropped is zero: a ring takes every record, and giving up the oldest for
// the newest is its purpose.
func (g *Ring) Dropped() uint64 { return 0 }
