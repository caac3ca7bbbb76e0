package logging

import (
	"cmp"
	"context"
	"io"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// DefaultRingSize is the number of records that a [Ring] of size zero keeps.
// They take 6 MiB, of which ordinary ones use 1.3.
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
// takes the lock for a few slots at a time, so that it holds up no operation.
//
// A slot is in three arrays. An operation on a block that succeeded, in no sampled trace,
// is an entry of one cache line and a tag, which is all that there is to know of it. Any
// other record lies whole in the third, which stays cold in a service that is well.
//
// The slots come in parcels. A stripe that has filled its newest parcel gets a fresh
// one, or one of the stripe that has most while it has less than its share, or else
// overwrites its own oldest. So a stream that is alone has its history in the whole
// ring, and a busy one displaces that of a quiet one only beyond the share of that.
type Ring struct {
	stripes []*stripe // for any stream, by its number
	lanes   []*stripe // of lanes, which write them under their own locks; sharing guards the list
	parcels []parcel
	each    int // how many slots of each parcel are used
	// crowded: there is no parcel for another lane, and will be none.
	crowded atomic.Bool

	_ [64]byte // what every record reads is not in a cache line with what each parcel writes

	// sharing is held while a stripe, whose lock is held, is granted a parcel, which
	// may try for the lock of another stripe that has parcels. Only a stripe without
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
	mu   *path.Lane // of the lane, or one of its own
	puts uint64     // is how many records were ever put
	room slots      // those of newest, of which at are written
	at   int
	// oldest to newest are the stripe's parcels, count of them. Others take the
	// oldest, under both locks.
	oldest, newest *parcel
	count          int
	_              [56]byte // makes 128 bytes: stripes share no cache line, nor a pair of them
}

// slots are those of a parcel.
type slots struct {
	entries *[parcelSize]entry
	tags    *[parcelSize]core.Tag
	whole   *[parcelSize]Record
}

// entry is what an ordinary record has beside its tag. It has no pointers, so the
// collector does not look at it.
type entry struct {
	start            monotime.Instant
	took             time.Duration
	ptr              uint64
	generation       core.Generation
	stream           core.StreamID
	requested, bytes uint64
	ordinal          int32
	op               oplog.Op // or opWhole
	_                [3]byte  // makes 64 bytes: neighbours share no cache line
}

// opWhole marks the entry of a record that lies whole beside.
const opWhole = ^oplog.Op(0)

var _ Sink = (*Ring)(nil)

// NewRing returns a ring of size records, rounded up to a power of two. A
// size of zero or less means [DefaultRingSize]. A record takes 392 bytes, of which one that
// is ordinary uses 80. A ring of 1024 records or more has 16 stripes, one of less than
// 128 has one.
func NewRing(size int) *Ring {
	size = 1 << bits.Len(uint(cmp.Or(max(size, 0), DefaultRingSize)-1))
	each := min(size, parcelSize)
	n := size / each
	g := &Ring{stripes: make([]*stripe, min(maxStripes, max(1, size/minStripe))), parcels: make([]parcel, n), each: each}
	for i := range g.stripes {
		g.stripes[i] = &stripe{mu: new(path.Lane)}
	}
	entries, tags, whole := make([][parcelSize]entry, n), make([][parcelSize]core.Tag, n), make([][parcelSize]Record, n)
	for i := range g.parcels {
		g.parcels[i].slots = slots{&entries[i], &tags[i], &whole[i]}
	}
	return g
}

// Put keeps r, in the place of the oldest record if the ring is full of its
// stream's.
func (g *Ring) Put(r Record) { g.keep(&r) }

func (g *Ring) keep(r *Record) {
	p := g.stripeOf(r.Event.Stream)
	p.mu.Lock()
	at := p.next(g)
	p.room.entries[at].op, p.room.whole[at] = opWhole, *r
	p.mu.Unlock()
}

// note keeps the record of an operation on a block of the stream and the device that it
// was asked of, if that is all there is to say.
func (g *Ring) note(op oplog.Op, b *core.Block, start monotime.Instant, took time.Duration) {
	p := g.stripeOf(b.ID.AllocStream)
	p.mu.Lock()
	p.note(g, op, b, start, took)
	p.mu.Unlock()
}

// ofLane is a stripe for what a lane serves, with its first parcel; nil if none can be had now.
// No lock may be held. The lane's lock, which is the stripe's, is only tried for, as sharing is under it.
func (g *Ring) ofLane(l *path.Lane) *stripe {
	g.sharing.Lock()
	defer g.sharing.Unlock()
	if g.active >= len(g.parcels) {
		g.crowded.Store(true)
		return nil
	}
	p := &stripe{mu: l}
	if !l.TryLock() {
		return nil
	}
	defer l.Unlock()
	g.active++
	c := g.parcelFor(p)
	if c == nil {
		g.active--
		return nil
	}
	p.begin(c)
	g.lanes = append(g.lanes, p)
	return p
}

// note is that of the ring, in a stripe that is locked.
func (p *stripe) note(g *Ring, op oplog.Op, b *core.Block, start monotime.Instant, took time.Duration) {
	at := p.next(g)
	e := &p.room.entries[at]
	if e.op == opWhole {
		p.room.whole[at] = Record{} // texts and errors must not live as long as the ring
	}
	e.op, e.ordinal, e.start, e.took = op, int32(b.ID.Ordinal), start, took
	e.ptr, e.generation, e.stream = b.ID.Ptr, b.ID.Generation, b.ID.AllocStream
	e.requested, e.bytes = b.Requested, b.Bytes
	if tag := &p.room.tags[at]; *tag != b.Tag { // nearly never: a store of a string costs more
		*tag = b.Tag
	}
}

func (g *Ring) stripeOf(stream core.StreamID) *stripe {
	return g.stripes[uint64(stream)&uint64(len(g.stripes)-1)]
}

// next returns the number of the slot to be written; p.mu must be held.
func (p *stripe) next(g *Ring) int {
	if p.at == g.each || p.newest == nil {
		g.advance(p)
	}
	at := p.at
	p.at++
	p.puts++
	return at
}

// Snapshot returns a copy of the records kept, oldest first by sequence
// number, or by time where there are none. Records put meanwhile may or may not be in it.
func (g *Ring) Snapshot() Records {
	records := make(Records, 0, min(g.Total(), uint64(g.Cap()))) // a few more or less by the time they are copied
	for i := range g.parcels {
		records = g.parcels[i].appendTo(records, g.each)
	}
	slices.SortStableFunc(records, func(a, b Record) int { return a.before(&b) })
	return records
}

// read is the record of a slot, as it would have been put whole.
func (s *slots) read(at int) Record {
	e := &s.entries[at]
	if e.op == opWhole {
		return s.whole[at]
	}
	return Record{Event: oplog.Event{Op: e.op, Layer: layerName, Time: e.start.Time(), Duration: e.took, Ordinal: int(e.ordinal), Stream: e.stream,
		Block: core.BlockID{Ptr: e.ptr, Generation: e.generation, AllocStream: e.stream, Ordinal: int(e.ordinal)},
		Tag:   s.tags[at], Requested: e.requested, Bytes: e.bytes}}
}

func bySeq(a, b Record) int { return cmp.Compare(a.Seq, b.Seq) }

// Cap is the number of records that the ring can keep.
func (g *Ring) Cap() int { return len(g.parcels) * g.each }

// everyStripe is those of streams and of lanes.
func (g *Ring) everyStripe() []*stripe {
	g.sharing.Lock()
	defer g.sharing.Unlock()
	return slices.Concat(g.stripes, g.lanes)
}

// Total is the number of records ever put.
func (g *Ring) Total() uint64 {
	total := uint64(0)
	for _, p := range g.everyStripe() {
		p.mu.Lock()
		total += p.puts
		p.mu.Unlock()
	}
	return total
}

// Since is when the ring begins: it has every record of what ended later. It is
// zero as long as the ring has given up none.
func (g *Ring) Since() (since time.Time) {
	for _, p := range g.everyStripe() {
		if at := p.since(g.each); at.After(since) {
			since = at
		}
	}
	return since
}

// since is the end of the oldest record that the stripe is sure to have, zero if
// it has all. What was given up was put before, and so had ended.
func (p *stripe) since(each int) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.newest == nil || p.puts <= uint64((p.count-1)*each+p.at) {
		return time.Time{}
	}
	oldest := p.oldest.slots.read(0)
	return oldest.Event.Time.Add(oldest.Event.Duration)
}

// Flush does nothing: a record is kept as soon as Put returns.
func (g *Ring) Flush(context.Context) error { return nil }

// Close does nothing: a ring runs nothing, and can be read at any time.
func (g *Ring) Close(context.Context) error { return nil }

// Dropped is zero: a ring takes every record, and giving up the oldest for
// the newest is its purpose.
func (g *Ring) Dropped() uint64 { return 0 }

// parcelSize is the number of slots of a parcel, but in a smaller ring: how many records are put before the
// stripe asks for another one, and how many a snapshot copies at a time.
const parcelSize = 16

// parcel is some slots, and what its owner's lock guards.
type parcel struct {
	slots slots
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
	p.begin(c)
}

// begin makes c, which is p's, the parcel that is written; p.mu must be held.
func (p *stripe) begin(c *parcel) {
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
	c := g.parcelFor(p)
	for c == nil && p.newest == nil { // no lane's, so no goroutine that is met waits for p
		runtime.Gosched()
		c = g.parcelFor(p)
	}
	return c
}

// parcelFor makes a parcel p's that is free, or another stripe's if p has less than its share; nil if
// there is none, or that stripe is locked. p.mu and sharing must be held.
func (g *Ring) parcelFor(p *stripe) (c *parcel) {
	switch {
	case g.given < len(g.parcels):
		c = &g.parcels[g.given]
		c.owner.Store(p)
		g.given++
	case p.count < len(g.parcels)/g.active:
		c = g.moveTo(p)
	}
	if c != nil {
		p.count++
	}
	return c
}

// moveTo gives p the oldest parcel of the stripe that has most: more than its share,
// so not its last. sharing must be held.
func (g *Ring) moveTo(p *stripe) *parcel {
	most := p
	for _, all := range [...][]*stripe{g.stripes, g.lanes} {
		for _, other := range all {
			if other.count > most.count {
				most = other
			}
		}
	}
	if !most.mu.TryLock() { // p may be a lane's, and the holder of a lane waits for no other
		return nil
	}
	defer most.mu.Unlock()
	c := most.oldest
	most.oldest = c.next
	most.count--
	c.owner.Store(p)
	c.full, most.newest.full = false, false // their old records are forgotten
	return c
}

// appendTo copies the records of a parcel, each of them if it is full.
func (c *parcel) appendTo(records []Record, each int) []Record {
	records = slices.Grow(records, each) // not under the lock
	p := c.lockOwner()
	if p == nil {
		return records
	}
	defer p.mu.Unlock()
	written := each
	if !c.full {
		written = p.at // it is the newest then
	}
	for at := range written {
		records = append(records, c.slots.read(at))
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
func (g *Ring) Events() []oplog.Event { return g.Snapshot().Events() }
