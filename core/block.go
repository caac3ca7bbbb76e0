package core

import "fmt"

// DefaultAlign is the alignment in bytes of a request that names none. It is
// what CUDA's allocators promise.
const DefaultAlign uint64 = 256

// MaxOrdinals is the number of device ordinals that a process can use.
const MaxOrdinals = 16

// BlockID identifies one allocation. It is comparable and is the key for
// everything the runtime keeps about a block. Identity is the pair of Ordinal
// and Generation; Ptr must lie inside the block, and a layer that shifts it
// (a guard, by its red zone) leaves the other fields alone. It may be copied
// and kept for any time: a stale id is refused with [UseAfterFreeError].
type BlockID struct {
	// Ptr is the device address that the caller uses.
	Ptr uint64
	// Generation is unique in the process and never zero for a block.
	Generation Generation
	// AllocStream is the stream on which the block was allocated and on
	// which it will be freed.
	AllocStream StreamID
	// Ordinal is the device the block lives on.
	Ordinal int
}

// String returns "ptr#generation@ordinal".
func (id BlockID) String() string {
	return fmt.Sprintf("%#x%s@%d", id.Ptr, id.Generation, id.Ordinal)
}

// BlockState is where a block stands in its life.
type BlockState uint8

// The states of a block, in the order in which it passes them. Quarantined
// happens only below a debug guard.
const (
	// Live: returned by Allocate and not yet deallocated.
	Live BlockState = iota + 1
	// Retired: deallocated, but the device has not passed the free (or an
	// open intent still holds the free back).
	Retired
	// Quarantined: deallocated, and held by a debug guard that watches the
	// bytes before it lets them be reused.
	Quarantined
	// Freed: gone. It is also the answer for a block that was never known.
	Freed
	// Claimed is no state of a block, but of bytes that a [Claim] has set aside
	// and that are in no block yet. Only a [Holder] has it.
	Claimed
)

// String returns the state's lower-case name.
func (s BlockState) String() string {
	return nameOf(s, "state", "", "live", "retired", "quarantined", "freed", "claimed")
}

// Block describes one allocation as the layer that returned it sees it.
// It is a value: copying it is cheap and nothing is shared. State is the
// state at the time of the call that returned the Block.
type Block struct {
	ID BlockID
	// Requested is the size in bytes that the outermost caller asked for.
	Requested uint64
	// Bytes is the size in bytes that this layer asked its upstream for: it
	// includes the padding of the layers above the one that answers.
	Bytes uint64
	// Align is the alignment in bytes that was honoured.
	Align uint64
	Tag   Tag
	State BlockState
}

// Request asks for one block.
type Request struct {
	// Bytes is the size to allocate; zero is refused with
	// [ErrInvalidRequest].
	Bytes uint64
	// Requested is the part of Bytes that the outermost caller asked for.
	// Zero means all of it. A layer that pads raises Bytes and keeps this.
	Requested uint64
	// Before is how many of Bytes come before those Requested: a layer that pads in front of the
	// caller's part adds to it. A device that judges accesses reports one of the rest as out of
	// bounds.
	Before uint64
	// Align is a power of two of at most 256, or zero for [DefaultAlign].
	// A resource may honour more than it is asked for, never less.
	Align uint64
	// Stream is where the allocation is ordered: the block may be used on
	// it at once and on other streams through prepared uses.
	Stream StreamID
	// Tag accounts the block; empty means "untagged", and one of more than
	// 256 bytes is cut.
	Tag Tag
	// Claim is the reservation that Requested is drawn from; the zero
	// claim means the general ledger.
	Claim ClaimID
	// Isolated asks for memory of a mapping of its own: behind the free it is
	// unmapped, its bytes go back to the device, and its addresses are not
	// given out again for as long as the resource can afford, so that a late
	// access faults. It needs [Isolation] and costs tens of microseconds. The
	// device gives whole units of [Inspector].IsolationGranularity; Bytes stays what
	// was asked for.
	Isolated bool
	// Withheld marks a block of a layer's own, which no caller has; see
	// [Resource.Withhold].
	Withheld bool
	// Account, if not nil, follows the block while it is live.
	Account *Account
	// Span is the trace span of the allocation, if it is recorded. A wait
	// for the block's readiness links to it.
	Span SpanRef
}

// Normalize checks r and fills in its defaults. op names the caller in the
// error, which is an [InvalidRequestError].
func (r *Request) Normalize(op string) error {
	if r.Bytes == 0 {
		return &InvalidRequestError{Op: op, Field: "Bytes", Reason: "zero bytes: ask for at least one byte, or use an empty typed slice"}
	}
	if r.Requested == 0 {
		r.Requested = r.Bytes
	}
	if r.Requested > r.Bytes {
		return &InvalidRequestError{Op: op, Field: "Requested", Reason: fmt.Sprintf("%d is more than Bytes (%d)", r.Requested, r.Bytes)}
	}
	if r.Before > r.Bytes-r.Requested {
		return &InvalidRequestError{Op: op, Field: "Before",
			Reason: fmt.Sprintf("%d and Requested (%d) are more than Bytes (%d)", r.Before, r.Requested, r.Bytes)}
	}
	if r.Align == 0 {
		r.Align = DefaultAlign
	}
	if r.Align&(r.Align-1) != 0 || r.Align > DefaultAlign {
		return &InvalidRequestError{Op: op, Field: "Align", Reason: fmt.Sprintf("%d is not a power of two of at most %d", r.Align, DefaultAlign)}
	}
	if tag := r.Tag.OrUntagged(); tag != r.Tag { // nearly never: a store of a string costs more
		r.Tag = tag
	}
	return nil
}

// ClaimID names a reservation; the zero value names none.
type ClaimID uint64

// Claim is bytes set aside by [Resource.Reserve] before work starts.
type Claim struct {
	ID ClaimID
	// Bytes is the size that was reserved.
	Bytes uint64
	Tag   Tag
}
