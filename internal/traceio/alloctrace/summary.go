package alloctrace

import (
	"math"
	"math/bits"
	"slices"
)

// Summary is what a trace holds by its own books, without any replay. Bytes
// are what the program asked for.
type Summary struct {
	// Events is the number of rows; the next three add up to it.
	Events, Allocations, Frees, Failures int
	// UnknownFrees are frees of a block that was not live. They are among
	// Frees.
	UnknownFrees int
	// Repeated are allocations at a pointer, or of a generation, that was
	// still live. The earlier block stays live for ever: nothing names it
	// any more.
	Repeated int
	// PeakLive and EndLive are sums of live blocks; a sum beyond 64 bits
	// reads as the largest number.
	PeakLive, EndLive uint64
	// LiveRows are the allocations that were never freed, in the order of
	// the file.
	LiveRows []Row
	// Streams are the streams named by any row, ascending.
	Streams []uint64
}

// Summarize computes the summary of t.
func Summarize(t *Trace) Summary {
	b := books{live: map[Key]Row{}, streams: map[uint64]bool{}}
	for _, row := range t.Rows {
		b.add(row)
	}
	b.sum.Events = len(t.Rows)
	b.sum.EndLive = b.bytes.saturated()
	return b.close()
}

// books are the state of a walk over the rows.
type books struct {
	live    map[Key]Row
	lost    []Row
	bytes   bytes128
	streams map[uint64]bool
	sum     Summary
}

func (b *books) add(row Row) {
	b.streams[row.Stream] = true
	switch row.Action {
	case Allocate:
		b.allocate(row)
	case Free:
		b.free(row)
	case AllocateFailure:
		b.sum.Failures++
	}
}

func (b *books) allocate(row Row) {
	b.sum.Allocations++
	if row.IsEmpty() {
		return
	}
	if earlier, ok := b.live[row.Key()]; ok {
		b.sum.Repeated++
		b.lost = append(b.lost, earlier)
	}
	b.live[row.Key()] = row
	b.bytes = b.bytes.add(row.Bytes)
	b.sum.PeakLive = max(b.sum.PeakLive, b.bytes.saturated())
}

// free takes the size from the allocation: that is what was charged.
func (b *books) free(row Row) {
	b.sum.Frees++
	if row.IsEmpty() {
		return
	}
	earlier, ok := b.live[row.Key()]
	if !ok {
		b.sum.UnknownFrees++
		return
	}
	delete(b.live, row.Key())
	b.bytes = b.bytes.sub(earlier.Bytes)
}

func (b *books) close() Summary {
	s := b.sum
	s.LiveRows = b.lost
	for _, row := range b.live {
		s.LiveRows = append(s.LiveRows, row)
	}
	slices.SortFunc(s.LiveRows, func(x, y Row) int { return x.Line - y.Line })
	for stream := range b.streams {
		s.Streams = append(s.Streams, stream)
	}
	slices.Sort(s.Streams)
	return s
}

// bytes128 is a sum of sizes. Sizes are any 64-bit numbers, and the summary
// of a mad trace must still be right or visibly saturated.
type bytes128 struct{ hi, lo uint64 }

func (b bytes128) add(n uint64) bytes128 {
	lo, carry := bits.Add64(b.lo, n, 0)
	return bytes128{hi: b.hi + carry, lo: lo}
}

func (b bytes128) sub(n uint64) bytes128 {
	lo, borrow := bits.Sub64(b.lo, n, 0)
	return bytes128{hi: b.hi - borrow, lo: lo}
}

func (b bytes128) saturated() uint64 {
	if b.hi != 0 {
		return math.MaxUint64
	}
	return b.lo
}
