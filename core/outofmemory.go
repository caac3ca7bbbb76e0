package core

import (
	"fmt"
	"strings"

	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/internal/size"
)

// MemoryShortage is the one reason why a pool has no memory for a request. In each of them, memory
// that the pool may still take from the device counts as free.
type MemoryShortage string

// The causes.
const (
	// ShortageInUse: less is free than was requested.
	ShortageInUse MemoryShortage = "in_use"
	// ShortageBehind: enough is free only together with what was freed behind work that the device
	// has not done: a later request may be served.
	ShortageBehind MemoryShortage = "behind"
	// ShortageFragmented: enough is free now, in pieces of which none is large enough.
	ShortageFragmented MemoryShortage = "fragmented"
)

// What bounds a pool, in [OutOfMemoryError].Bound.
const (
	// BoundBudget is the share of the device that the budget stands for.
	BoundBudget = "share of the budget"
	// BoundPool is the limit of the runtime's own pool.
	BoundPool = "pool limit"
	// BoundDevice is the device: it has no more.
	BoundDevice = "device"
)

// OutOfMemoryError is the refusal of a request that the budget admitted, if there is one, and for
// which a pool has no memory. It matches [ErrOutOfMemory]. All sizes are in bytes, of one look
// after the request failed. Streams go on meanwhile: a block that comes during the look counts as in
// use, not as free.
type OutOfMemoryError struct {
	// Requested is what was asked of the pool, guard padding included.
	Requested uint64
	Tag       Tag
	// Cause is why, and Bound what keeps the pool from taking more of the device.
	Cause MemoryShortage
	Bound string
	// Held is what the pool and the mappings of isolated blocks hold of the device. May is what they
	// may hold: if Bound is BoundDevice, Held and what the device had left. A pool's own limit counts
	// no isolated blocks: May is the limit and those.
	Held, May uint64
	// Used is the part of Held in blocks, Cached the rest. Two parts of Cached are
	//   - Behind: freed behind work that the device has not done,
	//   - Fragmented: free now, in pieces smaller than a page. In the driver's pool pieces of any
	//     size count.
	Used, Cached, Behind, Fragmented uint64
	// Largest is the largest free range for the request. It is zero if that is not known: a
	// driver's pool does not tell.
	Largest uint64
	// Holders are the largest holders, largest first, if a budget knows them. Those that are Live or
	// Quarantined have Used together at most. What is Retired is in Behind, or Used by another block
	// in stream order, and what is Claimed is in no block.
	Holders []Holder
	// MoreHolders is how many more there are, and MoreBytes what they hold together.
	MoreHolders, MoreBytes uint64
	// Err is the driver's error, nil if the driver was not asked.
	Err error
}

// Error explains the refusal on one line. Sizes are rounded, but those that differ never read the
// same.
func (e *OutOfMemoryError) Error() string {
	free := e.May - min(e.May, e.Used)
	of := size.Figures(append(holdersFigures(e.Holders, e.MoreBytes), e.Requested, free, e.Behind, min(e.Behind, free),
		e.Largest, e.Held, e.May, e.Used, e.Fragmented)...)
	var b strings.Builder
	fmt.Fprintf(&b, "the pool is out of memory: requested %s for %s: ", of(e.Requested),
		legible.Value(e.Tag.OrUntagged()))
	switch e.Cause {
	case ShortageBehind:
		fmt.Fprintf(&b, "%s are free, but %s of that behind work that the device has not done", of(free),
			of(min(e.Behind, free)))
	case ShortageFragmented:
		fmt.Fprintf(&b, "%s are free, but in pieces", of(free))
		if e.Largest > 0 {
			fmt.Fprintf(&b, ", the largest %s", of(e.Largest))
		}
	default:
		fmt.Fprintf(&b, "%s are free", of(free))
	}
	fmt.Fprintf(&b, " (held %s of %s that the %s allows; in use %s, behind work %s, fragmented %s)", of(e.Held),
		of(e.May), e.Bound,
		of(e.Used), of(e.Behind), of(e.Fragmented))
	b.WriteString(holdersText(of, e.Holders, e.MoreHolders, e.MoreBytes))
	if e.Err != nil {
		fmt.Fprintf(&b, "; %v", e.Err)
	}
	return b.String()
}

// Is matches [ErrOutOfMemory].
func (e *OutOfMemoryError) Is(target error) bool { return target == ErrOutOfMemory }

// Unwrap is the driver's error, if there is one.
func (e *OutOfMemoryError) Unwrap() error { return e.Err }
