package core

import "context"

// What follows are operations of the original's runtime, under its names.

// PrepareBlockUse is PrepareUse for a single block, the original's
// prepare_block_use.
func (r *Runtime) PrepareBlockUse(ctx context.Context, id BlockID, stream StreamID, access Access) (Ticket, error) {
	return r.PrepareUse(ctx, UseRequest{Stream: stream, Uses: []Use{{Block: id, Access: access}}})
}

// FinishBlockUse is FinishUse under the original's name.
func (r *Runtime) FinishBlockUse(ctx context.Context, t Ticket) error { return r.FinishUse(ctx, t) }

// RecordBlockUse records work that was already enqueued; see
// [Resource.RecordUse].
func (r *Runtime) RecordBlockUse(ctx context.Context, id BlockID, stream StreamID) error {
	if err := r.admit("RecordUse"); err != nil {
		return err
	}
	return r.observe("RecordUse", r.resource.RecordUse(ctx, id, stream))
}

// PrepareFirstUse prepares the first use of scratch memory on another stream
// than the one it was allocated on: the launch waits until the allocation is
// ready. Memory without a block of this runtime is a [StreamMisuseError].
func (r *Runtime) PrepareFirstUse(ctx context.Context, memory Tracked, stream StreamID, access Access) (Ticket, error) {
	if memory == nil {
		return Ticket{}, missing("PrepareFirstUse", "memory", "give the block or slice to be used")
	}
	id := memory.BlockID()
	if id.Generation >= NoBlock { // or NoBytes
		return Ticket{}, &StreamMisuseError{Op: "PrepareFirstUse", Stream: stream,
			Reason: "the memory is not runtime-backed: allocate it through a memory manager that has a runtime"}
	}
	return r.PrepareBlockUse(ctx, id, stream, access)
}

// FinishFirstUse ends what PrepareFirstUse began.
func (r *Runtime) FinishFirstUse(ctx context.Context, t Ticket) error { return r.FinishUse(ctx, t) }

// BytesOutstanding is live, pending and quarantined bytes.
func (r *Runtime) BytesOutstanding() uint64 { return r.resource.Stats().Outstanding().Bytes }

// SupportsBlockUseTracking reports whether the stack fences uses across
// streams.
func (r *Runtime) SupportsBlockUseTracking() bool {
	return r.resource.Features().Has(UseTracking)
}
