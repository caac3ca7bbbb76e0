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
	next         *record         // in its chain, among those underway, or spare
	_            [8]byte         // makes 64 bytes
}

// records are those of one stream ledger, whose lock guards all but one step. A
// record is opened with the grant, before there is a block, and stands in
// underway; the grant that became a block says so by storing its generation,
// without the lock, and whoever next looks for a block files it. So an
// allocation takes the stream ledger's lock once and not twice.
//
// The filed ones are a hash table of chains through the records themselves.
type records struct {
	chains   []*record
	filed    int
	underway *record
	spare    *record
}

const firstChains = 64

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

// makeSpares makes several at once: few for a stream ledger that holds little. So
// many in one piece share no cache line with those of another.
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
	return *t.place(uint64(g))
}

// remove takes the record of g out of the table and returns it, nil if there is none. The
// caller recycles it.
func (t *records) remove(g core.Generation) *record {
	t.file()
	if t.filed == 0 {
		return nil
	}
	at := t.place(uint64(g))
	r := *at
	if r != nil {
		*at = r.next
		t.filed--
	}
	return r
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
		if t.filed == len(t.chains) {
			t.grow()
		}
		t.filed++
		t.push(r)
	}
}

func (t *records) grow() {
	old := t.chains
	t.chains = make([]*record, max(firstChains, 2*len(old)))
	for _, r := range old {
		for r != nil {
			next := r.next
			t.push(r)
			r = next
		}
	}
}

func (t *records) push(r *record) {
	head := t.chain(r.generation.Load())
	r.next, *head = *head, r
}

// place is where the record of a generation hangs, or would.
func (t *records) place(generation uint64) **record {
	at := t.chain(generation)
	for *at != nil && (*at).generation.Load() != generation {
		at = &(*at).next
	}
	return at
}

func (t *records) chain(generation uint64) **record {
	return &t.chains[generation&uint64(len(t.chains)-1)]
}
