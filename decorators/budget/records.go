package budget

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/blocktable"
)

// record is what the budget keeps of one block: where it is counted, and
// which of its bytes are drawn from a claim.
type record struct {
	// node has no generation until the block is known.
	node         blocktable.Node[record]
	tally        *tally
	account      *streamAccount
	bytes, drawn uint64
	pending      bool
	state        core.BlockState // where the tally counts it
	next         *record         // among those underway, or spare
}

// records are those of one stream ledger, whose lock guards all but one step. A
// record is opened with the grant, before there is a block, and stands in
// underway; the grant that became a block says so by storing its generation,
// without the lock, and whoever next looks for a block files it. So an
// allocation takes the stream ledger's lock once and not twice.
type records struct {
	filed    blocktable.Table[record]
	underway *record
	spare    *record
}

// open returns an empty record for a grant.
func (t *records) open() *record {
	t.file(0)
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
	slab := make([]record, max(8, min(64, t.filed.Len())))
	for i := range slab {
		t.recycle(&slab[i])
	}
}

// become makes r that of the block g. It needs no lock.
func (r *record) become(g core.Generation) { r.node.Word.Store(blocktable.Word(g, 0)) }

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
	t.file(0)
	return t.filed.Find(g)
}

// remove takes the record of g out of the table and returns it, nil if there is none. The
// caller recycles it.
func (t *records) remove(g core.Generation) *record {
	if r := t.file(g); r != nil {
		return r
	}
	return t.filed.Remove(g)
}

// recycle keeps r for a later grant.
func (t *records) recycle(r *record) {
	r.node.Word.Store(0)
	r.pending = false
	r.next, t.spare = t.spare, r
}

// file moves the records that have become blocks to the table, but for that of
// wanted, which it takes out and returns: a block that is freed soon never gets
// there. Few are underway at a time: as many as there are goroutines in an allocation.
func (t *records) file(wanted core.Generation) (found *record) {
	for at := &t.underway; *at != nil; {
		r := *at
		switch r.node.Generation() {
		case 0:
			at = &r.next
			continue
		case wanted:
			found = r
		default:
			t.filed.Insert(r.node.Generation(), &r.node, r)
		}
		*at = r.next
	}
	return found
}
