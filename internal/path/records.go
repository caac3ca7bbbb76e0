package path

import (
	"slices"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// Record is what all layers know of a block. The zero Record has no parts.
type Record struct{ parts [maxParts]any }

// maxParts is for how many layers a table has room.
const maxParts = 3

// Book is where the owner of a table keeps the records. Its methods are safe for concurrent use.
type Book interface {
	// Load finds the record of a block without a lock. It may miss one, and the record may be of
	// another block by then.
	Load(core.BlockID) *Record
	// Find is Load that misses none.
	Find(core.BlockID) *Record
	// Each calls yield for every record, with no lock held, until yield returns false. What comes or
	// goes meanwhile may be missed.
	Each(yield func(core.Generation, *Record) bool)
}

// Records are those of the blocks of one segment of a stack, which share a table.
type Records struct {
	_ [64]byte // what every operation reads shares no cache line with what others write
	Book
	own *ownBook // nil if a backend owns the table
	// makers make the parts of new records.
	makers atomic.Pointer[[]maker]
	_      [64]byte
}

// NewRecords are those of a backend.
func NewRecords(book Book) *Records { return &Records{Book: book} }

// OfBackend reports whether a backend owns the records, which then knows of [Watch].
func (r *Records) OfBackend() bool { return r.own == nil }

// maker makes one part each of so many records.
type maker func(n int) (part func(i int) any)

// AtOnce is how many records an owner makes at a time.
const AtOnce = 8

// Keeper is a layer whose records those above share.
type Keeper interface {
	// SharedRecords returns the layer itself, which one that embeds it is not, and its records, nil if
	// it has none.
	SharedRecords() (core.Resource, *Records)
}

// SharedBy are the records that the layers above r share with it, nil if there are none.
func SharedBy(r core.Resource) *Records {
	if k, ok := r.(Keeper); ok {
		if layer, records := k.SharedRecords(); layer == r {
			return records
		}
	}
	return nil
}

// hasRoom reports whether the records that r shares have room for a part of one more layer. It is for the
// construction of a layer.
func hasRoom(r core.Resource) bool {
	records := SharedBy(r)
	if records == nil {
		return true
	}
	makers := records.makers.Load()
	return makers == nil || len(*makers) < maxParts
}

// Join gives a layer that lies over a path a part of the records: of those that upstream shares, or, if it shares none or
// the path begins with calls of it, of new ones that the layer owns. It is for the
// construction of a layer, before anything is allocated through it.
func Join[T any](below *Path, upstream core.Resource) (*Records, Part[T]) {
	made := func(n int) func(int) any {
		parts := make([]T, n)
		return func(i int) any { return &parts[i] }
	}
	if r := below.Shared(upstream); r != nil {
		if number, ok := r.add(made); ok {
			return r, Part[T]{number}
		}
	}
	r := &Records{}
	r.own = &ownBook{records: r, upstream: upstream}
	r.Book = r.own
	number, _ := r.add(made)
	return r, Part[T]{number}
}

// add makes one more part of each record that is made from now on, if there is room.
func (r *Records) add(made maker) (number int, ok bool) {
	for {
		old := r.makers.Load()
		var makers []maker
		if old != nil {
			makers = *old
		}
		if len(makers) == maxParts {
			return 0, false
		}
		makers = append(slices.Clone(makers), made)
		if r.makers.CompareAndSwap(old, &makers) {
			return len(makers) - 1, true
		}
	}
}

// Enter is the record of a block that the upstream of a layer has just returned. No lock may be held.
func (r *Records) Enter(b *core.Block) *Record {
	if r.own != nil {
		return r.own.enter(b)
	}
	return r.Find(b.ID)
}

// Served is the record of the block of an operation that the layers beneath have served: o.Record, or one of the
// table that a layer owns. The lane of o is locked.
func (r *Records) Served(o *Op) *Record {
	switch {
	case r.own == nil:
		return o.Record
	case o.Free:
		return r.own.Find(o.ID)
	}
	return r.own.enter(&o.Block)
}

// Equip gives AtOnce new records their parts.
func (r *Records) Equip(record func(i int) *Record) {
	makers := r.makers.Load()
	if makers == nil {
		return
	}
	for number, made := range *makers {
		part := made(AtOnce)
		for i := range AtOnce {
			record(i).parts[number] = part(i)
		}
	}
}

// Fits reports whether a record has a part for each layer: one that was made before a layer has none for it.
func (r *Records) Fits(rec *Record) bool {
	makers := r.makers.Load()
	return makers == nil || rec.parts[len(*makers)-1] != nil
}

// Part is which part of the records of a segment is a layer's.
type Part[T any] struct{ number int }

// Of is the layer's part of a record, nil if that is nil or older than the layer.
func (p Part[T]) Of(rec *Record) *T {
	if rec == nil {
		return nil
	}
	part, _ := rec.parts[p.number].(*T)
	return part
}

// Listener hears of released blocks with their records, as the layers do that have a part of them.
type Listener struct {
	// Hear is told of a block, and of its record unless the teller has none of the segment.
	Hear func(*Record, core.Block)
}

// Released is for tellers that know no records.
func (l Listener) Released(b core.Block) { l.Hear(nil, b) }

// Subscribe has a listener hear of blocks that upstream releases, over which a layer with these records
// lies: with the record, where it is a layer's.
func (r *Records) Subscribe(upstream core.Resource, l core.Listener) {
	if layer, ok := l.(Listener); ok && r.own != nil && SharedBy(upstream) != r {
		r.own.subscribe(layer)
		return
	}
	upstream.Subscribe(l)
}
