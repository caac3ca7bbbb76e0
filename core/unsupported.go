package core

import "context"

// Unsupported answers the operations of [Resource] that a backend may lack:
// use tracking and reservations it refuses with a StreamMisuseError, because a
// silent no-op would let a launch believe that it is fenced; it counts nothing as
// withheld, compares nothing and knows nothing (see [Unsupported.Inspect]). A backend may embed
// it; a decorator must not, because it would take away what its upstream can do.
type Unsupported struct {
	// Resource names the backend in the errors, such as "direct(sim:0)".
	Resource string
}

func (u Unsupported) refuse(op, advice string) error {
	return &StreamMisuseError{Op: op, Unsupported: true, Reason: op + " unsupported by " + u.Resource + ": " + advice}
}

const trackingAdvice = "the backend does not track cross-stream uses; route allocations through a stream-ordered backend such as cuda.AsyncResource, or order the streams yourself"

// PrepareUse refuses.
func (u Unsupported) PrepareUse(context.Context, UseRequest) (Ticket, error) {
	return Ticket{}, u.refuse("PrepareUse", trackingAdvice)
}

// FinishUse refuses.
func (u Unsupported) FinishUse(context.Context, Ticket) error {
	return u.refuse("FinishUse", trackingAdvice)
}

// AbortUse refuses.
func (u Unsupported) AbortUse(context.Context, Ticket) error {
	return u.refuse("AbortUse", trackingAdvice)
}

// RecordUse refuses.
func (u Unsupported) RecordUse(context.Context, BlockID, StreamID) error {
	return u.refuse("RecordUse", trackingAdvice)
}

const budgetAdvice = "the stack has no budget; add decorators/budget to it"

// Reserve refuses.
func (u Unsupported) Reserve(context.Context, uint64, Tag) (Claim, error) {
	return Claim{}, u.refuse("Reserve", budgetAdvice)
}

// ReleaseClaim refuses.
func (u Unsupported) ReleaseClaim(context.Context, ClaimID) error {
	return u.refuse("ReleaseClaim", budgetAdvice)
}

// Withhold does nothing.
func (Unsupported) Withhold(BlockID, BlockState) {}

// CheckLive has nothing to compare.
func (Unsupported) CheckLive(context.Context) error { return nil }

// Inspect returns what knows nothing, so that every stream counts as leased. A backend
// may embed it in an Inspector of its own and answer what it knows.
func (Unsupported) Inspect() Inspector { return uninspected{} }
