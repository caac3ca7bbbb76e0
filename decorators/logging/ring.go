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
// They take 4 MiB.
const DefaultRingSize = 16384

// Ring is a [Sink] that keeps the newest records in memory. It allocates
// nothing after NewRing. It is safe for concurrent use.
//
// # How it works
//
// The ring is striped by stream, so that goroutines on different streams
// write to different cache lines. In its stripe a writer claims a slot by one
// atomic increment and fills it under that slot's own lock, so writers meet
// only if one laps the stripe while another is still inside, or if a snapshot
// reads that very slot. A writer that was overtaken by a whole round leaves
// the newer record alone.
//
// Each stripe keeps its own newest records: a busy stream does not drive out
// the history of a quiet one.
type Ring struct {
	stripes []stripe
}

// maxStripes is the number of stripes of a ring that is large enough for
// minStripe records in each.
const (
	maxStripes = 16
	minStripe  = 64
)

type stripe struct {
	next  atomic.Uint64
	mask  uint64
	slots []slot
	_     [24]byte // makes 64 bytes: each cursor has a cache line of its own
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
// size of zero or less means [DefaultRingSize]. A record takes 256 bytes. A
// ring of 1024 records or more has 16 stripes, one of less than 128 has one:
// the records of one stream share a stripe's part of the size.
func NewRing(size int) *Ring {
	if size <= 0 {
		size = DefaultRingSize
	}
	size = 1 << bits.Len(uint(size-1))
	count := min(maxStripes, max(1, size/minStripe))
	g := &Ring{stripes: make([]stripe, count)}
	for i := range g.stripes {
		g.stripes[i].slots = make([]slot, size/count)
		g.stripes[i].mask = uint64(size/count - 1)
	}
	return g
}

// Put keeps r in the place of its stripe's oldest record.
func (g *Ring) Put(r Record) {
	p := &g.stripes[uint64(r.Event.Stream)&uint64(len(g.stripes)-1)]
	claim := p.next.Add(1)
	s := &p.slots[claim&p.mask]
	s.mu.Lock()
	if s.claim < claim {
		s.claim = claim
		s.record = r
	}
	s.mu.Unlock()
}

// Snapshot returns a copy of the records kept, oldest first by sequence
// number, or by time where there are none. Records put meanwhile may or may not be in it.
func (g *Ring) Snapshot() []Record {
	var records []Record
	for i := range g.stripes {
		records = g.stripes[i].appendTo(records)
	}
	slices.SortStableFunc(records, func(a, b Record) int { return a.before(&b) })
	return records
}

func (p *stripe) appendTo(records []Record) []Record {
	for i := range p.slots {
		s := &p.slots[i]
		s.mu.Lock()
		if s.claim != 0 {
			records = append(records, s.record)
		}
		s.mu.Unlock()
	}
	return records
}

func bySeq(a, b Record) int { return cmp.Compare(a.Seq, b.Seq) }

// Cap is the number of records that the ring can keep.
func (g *Ring) Cap() int { return len(g.stripes) * len(g.stripes[0].slots) }

// Total is the number of records ever put.
func (g *Ring) Total() uint64 {
	total := uint64(0)
	for i := range g.stripes {
		total += g.stripes[i].next.Load()
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
