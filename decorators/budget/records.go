package budget

import (
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// record is what the budget keeps of one block: where it is counted, and
// which of its bytes are drawn from a claim.
type record struct {
	// generation is zero until the block is known.
	generation   atomic.Uint64
	tally        *tally
	account      *streamAccount
	bytes, drawn uint64
	pending      bool
	state        core.BlockState // where the tally counts it
	next         *record
	_            [8]byte // makes 64 bytes, so that stream ledgers share no cache line
}

// records are those of one stream ledger, whose lock guards all but one step. A
// record is opened with the grant, before there is a block, and stands in
// underway; the grant that became a block says so by storing its generation,
// without the lock, and whoever next looks for a block files it. So an
// allocation takes the stream ledger's lock once and not twice.
//
// Filed records stand in a hash table of chains through the records
// themselves. Generations are consecutive in the process, so chains are
// short. It is not a Go map because records are also kept for the next block,
// and because it takes a third of the time.
type records struct {
	buckets  []*record
	filed    int
	underway *record
	spare    *record
}

// open returns an empty record for a grant.
func (t *records) open() *record {
	t.file()
	if t.spare == nil {
		t.makeSpares()
	}
	r := t.spare
	t.spare = r.next
	r.next, t.underway = t.underway, r
	return r
}

// makeSpares makes several at once: few for a stream ledger that holds little.
func (t *records) makeSpares() {
	slab := make([]record, max(8, min(64, t.filed)))
	for i := range slab {
		t.recycle(&slab[i])
	}
}

// become makes r that of the block g. It needs no lock.
func (r *record) become(g core.Generation) { r.generation.Store(uint64(g)) }

// abandon takes back a record whose grant became no block.
func (t *records) abandon(r *record) {
	at := &t.underway
	for *at != r {
		at = &(*at).next
	}
	*at = r.next
	t.recycle(r)
}

// find returns the record of g, nil if there is none.
func (t *records) find(g core.Generation) *record {
	t.file()
	if t.filed == 0 {
		return nil
	}
	return *t.place(g)
}

// remove takes r, which was found, out of the table.
func (t *records) remove(r *record) {
	*t.place(core.Generation(r.generation.Load())) = r.next
	t.filed--
	t.recycle(r)
}

// recycle keeps r for a later grant.
func (t *records) recycle(r *record) {
	r.generation.Store(0)
	r.pending = false
	r.next, t.spare = t.spare, r
}

// file moves the records that have become blocks to the table. Few are
// underway at a time: as many as there are goroutines in an allocation.
func (t *records) file() {
	for at := &t.underway; *at != nil; {
		r := *at
		if r.generation.Load() == 0 {
			at = &r.next
			continue
		}
		*at = r.next
		t.insert(r)
	}
}

func (t *records) insert(r *record) {
	if t.filed == len(t.buckets) {
		t.grow()
	}
	t.filed++
	t.push(r)
}

func (t *records) push(r *record) {
	head := t.chain(core.Generation(r.generation.Load()))
	r.next, *head = *head, r
}

func (t *records) grow() {
	old := t.buckets
	t.buckets = make([]*record, max(16, 2*len(old)))
	for _, r := range old {
		for r != nil {
			next := r.next
			t.push(r)
			r = next
		}
	}
}

func (t *records) chain(g core.Generation) **record {
	return &t.buckets[uint64(g)&uint64(len(t.buckets)-1)]
}

// place is where the record of g hangs, or would.
func (t *records) place(g core.Generation) **record {
	at := t.chain(g)
	for *at != nil && (*at).generation.Load() != uint64(g) {
		at = &(*at).next
	}
	return at
}
