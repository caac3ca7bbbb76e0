package logging

import (
	"cmp"
	"context"
	"io"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// DefaultRingSize is the number of records that a [Ring] of size zero keeps.
// They take 5 MiB.
const DefaultRingSize = 16384

// Ring is a [Sink] that keeps the newest records in memory. It allocates
// nothing after NewRing. It is safe for concurrent use.
//
// # How it works
//
// The ring is striped by stream, so that goroutines on different streams
// write to different cache lines. In its stripe a writer fills the next slot
// under the stripe's lock, which is held for one copy: on a stream that all
// share its backend has a lock of its own that is held for longer. A snapshot
// takes the lock for a few slots at a time, so that it holds nobody up.
//
// The slots come in parcels. A stripe that has filled its newest parcel gets a fresh
// one, or one of the stripe that has most while it has less than its share, or else
// overwrites its own oldest. So a stream that is alone has its history in the whole
// ring, and a busy one displaces that of a quiet one only beyond the share of that.
type Ring struct {
	stripes []stripe
	parcels []parcel

	// sharing is held while a stripe, whose lock is held, is granted a parcel, which
	// may take the lock of another stripe that has parcels. So only a stripe without
	// parcels waits for sharing; all others try.
	sharing sync.Mutex
	given   int // how many parcels have an owner
	active  int // how many stripes have parcels
}

// maxStripes is the number of stripes of a ring that is large enough for
// minStripe records in each.
const (
	maxStripes = 16
	minStripe  = 64
)

type stripe struct {
	mu   sync.Mutex
	puts uint64 // is how many records were ever put
	room []slot // the slots of newest, of which at are written
	at   int
	// oldest to newest are the stripe's parcels, count of them. Others take the
	// oldest, under both locks.
	oldest, newest *parcel
	count          int
	_              [56]byte // makes 128 bytes: stripes share no cache line, nor a pair of them
}

type slot struct {
	record Record
	// at is the record's time, unless it came with one.
	at moment
	_  [8]byte // makes 320 bytes: neighbours share no cache line
}

var _ Sink = (*Ring)(nil)

// NewRing returns a ring of size records, rounded up to a power of two. A
// size of zero or less means [DefaultRingSize]. A record takes 320 bytes. A
// ring of 1024 records or more has 16 stripes, one of less than 128 has one.
func NewRing(size int) *Ring {
	size = 1 << bits.Len(uint(cmp.Or(max(size, 0), DefaultRingSize)-1))
	each := min(size, parcelSize)
	g := &Ring{stripes: make([]stripe, min(maxStripes, max(1, size/minStripe))), parcels: make([]parcel, size/each)}
	slots := make([]slot, size)
	for i := range g.parcels {
		g.parcels[i].slots = slots[i*each : (i+1)*each]
	}
	return g
}

// Put keeps r, in the place of the oldest record if the ring is full of its
// stream's.
func (g *Ring) Put(r Record) { g.keep(&r, moment{}) }

// keep is Put of a record whose time is at, unless that is zero.
func (g *Ring) keep(r *Record, at moment) {
	p := &g.stripes[uint64(r.Event.Stream)&uint64(len(g.stripes)-1)]
	p.mu.Lock()
	if p.at == len(p.room) {
		g.advance(p)
	}
	s := &p.room[p.at]
	s.record, s.at = *r, at
	p.at++
	p.puts++
	p.mu.Unlock()
}

// Snapshot returns a copy of the records kept, oldest first by sequence
// number, or by time where there are none. Records put meanwhile may or may not be in it.
func (g *Ring) Snapshot() Records {
	records := make(Records, 0, min(g.Total(), uint64(g.Cap()))) // a few more or less by the time they are copied
	for i := range g.parcels {
		records = g.parcels[i].appendTo(records)
	}
	slices.SortStableFunc(records, func(a, b Record) int { return a.before(&b) })
	return records
}

func (s *slot) read() Record {
	r := s.record
	if s.at.base != nil {
		r.Event.Time = s.at.time()
	}
	return r
}

func bySeq(a, b Record) int { return cmp.Compare(a.Seq, b.Seq) }

// Cap is the number of records that the ring can keep.
func (g *Ring) Cap() int { return len(g.parcels) * len(g.parcels[0].slots) }

// Total is the number of records ever put.
func (g *Ring) Total() uint64 {
	total := uint64(0)
	for i := range g.stripes {
		p := &g.stripes[i]
		p.mu.Lock()
		total += p.puts
		p.mu.Unlock()
	}
	return total
}

// Since is when the ring begins: it has every record of what ended later. It is
// zero as long as the ring has given up none.
func (g *Ring) Since() (since time.Time) {
	for i := range g.stripes {
		if at := g.stripes[i].since(); at.After(since) {
			since = at
		}
	}
	return since
}

// since is the end of the oldest record that the stripe is sure to have, zero if
// it has all. What was given up was put before, and so had ended.
func (p *stripe) since() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.newest == nil || p.puts <= uint64((p.count-1)*len(p.room)+p.at) {
		return time.Time{}
	}
	oldest := p.oldest.slots[0].read()
	return oldest.Event.Time.Add(oldest.Event.Duration)
}

// Flush does nothing: a record is kept as soon as Put returns.
func (g *Ring) Flush(context.Context) error { return nil }

// Close does nothing: a ring runs nothing, and can be read at any time.
func (g *Ring) Close(context.Context) error { return nil }

// Dropped is zero: a ring takes every record, and giving up the oldest for
// the newest is its purpose.
func (g *Ring) Dropped() uint64 { return 0 }

// parcelSize is the number of slots of a parcel: how many records are put before the
// stripe asks for another one, and how many a snapshot copies at a time.
const parcelSize = 16

// parcel is some slots, and what its owner's lock guards.
type parcel struct {
	slots []slot
	next  *parcel // the owner's next newer one
	full  bool    // every slot is to be read, not only those before the owner's at
	owner atomic.Pointer[stripe]
}

// advance begins another parcel; p.mu must be held.
func (g *Ring) advance(p *stripe) {
	c := g.grant(p)
	if c == nil {
		c, p.oldest = p.oldest, p.oldest.next
	}
	if p.newest != nil {
		p.newest.full = true
	}
	if p.oldest == nil {
		p.oldest = c
	} else {
		p.newest.next = c
	}
	p.newest, c.next = c, nil
	p.room, p.at = c.slots, 0
}

// grant makes a parcel p's. It returns nil if p has its share, or another stripe is
// being granted one; p.mu must be held.
func (g *Ring) grant(p *stripe) *parcel {
	switch {
	case p.newest == nil:
		g.sharing.Lock()
		g.active++
	case !g.sharing.TryLock():
		return nil
	}
	defer g.sharing.Unlock()
	var c *parcel
	switch {
	case g.given < len(g.parcels):
		c = &g.parcels[g.given]
		c.owner.Store(p)
		g.given++
	case p.count < len(g.parcels)/g.active:
		c = g.moveTo(p)
	default:
		return nil
	}
	p.count++
	return c
}

// moveTo gives p the oldest parcel of the stripe that has most: more than its share,
// so not its last. sharing must be held.
func (g *Ring) moveTo(p *stripe) *parcel {
	most := p
	for i := range g.stripes {
		if g.stripes[i].count > most.count {
			most = &g.stripes[i]
		}
	}
	most.mu.Lock()
	defer most.mu.Unlock()
	c := most.oldest
	most.oldest = c.next
	most.count--
	c.owner.Store(p)
	c.full, most.newest.full = false, false // their old records are forgotten
	return c
}

// appendTo copies the records of a parcel.
func (c *parcel) appendTo(records []Record) []Record {
	records = slices.Grow(records, len(c.slots)) // not under the lock
	p := c.lockOwner()
	if p == nil {
		return records
	}
	defer p.mu.Unlock()
	written := len(c.slots)
	if !c.full {
		written = p.at // it is the newest then
	}
	for i := range c.slots[:written] {
		records = append(records, c.slots[i].read())
	}
	return records
}

// lockOwner locks the stripe that has the parcel, and returns nil if none has.
func (c *parcel) lockOwner() *stripe {
	for {
		p := c.owner.Load()
		if p == nil {
			return nil
		}
		p.mu.Lock()
		if c.owner.Load() == p {
			return p
		}
		p.mu.Unlock()
	}
}

// WriteJSON writes what the ring keeps as JSON lines, oldest first.
func (g *Ring) WriteJSON(w io.Writer) error { return g.Snapshot().WriteJSON(w) }

// Events is the events of a [Ring.Snapshot].
func (g *Ring) Events() []core.Event { return g.Snapshot().Events() }
