package liveview

import (
	"maps"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
)

// byState is bytes that are live, pending and quarantined.
type byState [3]uint64

// place is where a state stands in byState.
func place(s core.BlockState) int {
	switch s {
	case core.Retired:
		return 1
	case core.Quarantined:
		return 2
	}
	return 0
}

// coverage is which parts of the address space have blocks, and how many bytes
// of them. The parts are equal; they begin as the 2 MiB in which a device maps
// memory unless a closer look is asked for, and are doubled when there are too many.
type coverage struct {
	shift uint
	parts map[uint64]*byState
}

const (
	partShift = 21
	// maxParts bounds the parts, and maxSpan those of one block.
	maxParts = 1 << 16
	maxSpan  = 1 << 12
)

func newCoverage(shift uint) *coverage { return &coverage{shift: shift, parts: map[uint64]*byState{}} }

func (c *coverage) add(b core.Block) {
	for b.Bytes>>c.shift > maxSpan || len(c.parts) > maxParts {
		c.coarsen()
	}
	c.each(b, func(part, bytes uint64) { c.sum(part)[place(b.State)] += bytes })
}

// sum is what a part has.
func (c *coverage) sum(part uint64) *byState {
	if c.parts[part] == nil {
		c.parts[part] = &byState{}
	}
	return c.parts[part]
}

// remove takes out a block that was added.
func (c *coverage) remove(b core.Block) {
	c.each(b, func(part, bytes uint64) { c.parts[part][place(b.State)] -= bytes })
}

// each calls f for the parts that a block lies in.
func (c *coverage) each(b core.Block, f func(part, bytes uint64)) {
	size := uint64(1) << c.shift
	for at, left := b.ID.Ptr, b.Bytes; left > 0; {
		bytes := min(left, size-at&(size-1))
		f(at>>c.shift, bytes)
		at, left = at+bytes, left-bytes
	}
}

func (c *coverage) coarsen() {
	c.shift++
	former := c.parts
	c.parts = make(map[uint64]*byState, len(former)/2)
	for part, bytes := range former {
		for i, n := range bytes {
			c.sum(part >> 1)[i] += n
		}
	}
}

// extent is a stretch of parts with blocks in them and small gaps between. The
// extents of a map lie one behind the other there: begin is where, in parts.
type extent struct{ first, n, begin uint64 }

// usualGap is the largest gap, in parts of the usual size, that is not left out.
const usualGap = 32

// extents are at most limit.
func (c *coverage) extents(limit int) []extent {
	parts := slices.Sorted(maps.Keys(c.parts))
	gap := uint64(usualGap)
	if c.shift < partShift {
		gap <<= partShift - c.shift
	}
	for ; ; gap *= 2 {
		list := joined(parts, gap)
		if len(list) <= limit {
			return list
		}
	}
}

func joined(parts []uint64, gap uint64) (list []extent) {
	for _, p := range parts {
		if n := len(list); n > 0 && p-(list[n-1].first+list[n-1].n) <= gap {
			list[n-1].n = p - list[n-1].first + 1
			continue
		}
		list = append(list, extent{first: p, n: 1})
	}
	begin := uint64(0)
	for i := range list {
		list[i].begin = begin
		begin += list[i].n
	}
	return list
}
