package budget

import (
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/blocktable"
)

// record is what the budget keeps of one block: where it is counted, and
// which of its bytes are drawn from a claim. It is one cache line.
type record struct {
	node         blocktable.Node[record]
	tally        *tally
	account      *streamAccount
	bytes, drawn uint64
	pending      bool
	state        core.BlockState // where the tally counts it
}

// records are those of one stream ledger, whose lock guards all but one step. A
// record is opened with the grant, before there is a block, and stands in
// underway; the grant that became a block says so by storing its generation,
// without the lock, and whoever next looks for a block files it. So an
// allocation takes the stream ledger's lock once and not twice.
type records struct {
	filed    blocktable.Table[record]
	underway []underway
	spare    []*record
	made     int
}

// underway is the record of a grant that is no block yet while the record has the
// generation that it had, which is that of an earlier block.
type underway struct {
	record  *record
	earlier core.Generation
}

// madeAtOnce makes a piece of memory of its own for records of one stream ledger, which
// share no cache line with those of another.
const madeAtOnce = 8

// open returns a record for a grant.
func (t *records) open() *record {
	t.file(0)
	if len(t.spare) == 0 {
		t.makeSpares()
	}
	last := len(t.spare) - 1
	r := t.spare[last]
	t.spare = t.spare[:last]
	t.underway = append(t.underway, underway{r, r.node.Generation()})
	return r
}

// makeSpares makes several, and room for all to be spare.
func (t *records) makeSpares() {
	t.made += madeAtOnce
	t.spare = slices.Grow(t.spare, t.made)
	made := new([madeAtOnce]record)
	for i := range made {
		t.recycle(&made[i])
	}
}

// become makes r that of the block g. It needs no lock.
func (r *record) become(g core.Generation) { r.node.Word.Store(blocktable.Word(g, 0)) }

// abandon takes back a record whose grant became no block.
func (t *records) abandon(r *record) {
	i := slices.IndexFunc(t.underway, func(u underway) bool { return u.record == r })
	t.underway = slices.Delete(t.underway, i, i+1)
	t.recycle(r)
}

// find returns the record of g, nil if there is none.
func (t *records) find(g core.Generation) *record {
	t.file(0)
	return t.filed.Find(g)
}

// remove takes the record of g out and returns it, nil if there is none. The caller
// recycles it.
func (t *records) remove(g core.Generation) *record {
	if r := t.file(g); r != nil {
		return r
	}
	return t.filed.Remove(g)
}

// recycle keeps r for a later grant.
func (t *records) recycle(r *record) {
	r.pending = false
	t.spare = append(t.spare, r)
}

// file moves the records that have become blocks to the table, but for that of
// wanted, which it takes out and returns: a block that is freed soon never gets
// there. Few are underway at a time: as many as there are goroutines in an allocation.
func (t *records) file(wanted core.Generation) (found *record) {
	left := t.underway[:0]
	for _, u := range t.underway {
		node := &u.record.node
		switch g := node.Generation(); g {
		case u.earlier:
			left = append(left, u)
		case wanted:
			found = u.record
		default:
			t.filed.Insert(g, node, u.record)
		}
	}
	t.underway = left
	return found
}
