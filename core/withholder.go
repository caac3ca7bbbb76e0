package core

// Withholder is a resource that counts what a guard above it withholds apart from
// what callers have. It is no part of [Resource] because nothing depends on it:
// a layer passes it on to its upstream if that is one, and where one does not, the
// layers below count such a block as live. [Request.Withheld] says the same of
// a block from the start.
type Withholder interface {
	// Withhold says that the owner of a block that is live here has given it back,
	// and what it is to callers now: Retired while a launch keeps it, Quarantined
	// from then on; calls may overtake each other, and the later state holds. It
	// counts no more in Stats.PeakRequested and Stats.PeakBytes, and is among a
	// budget's holders as what it is. It stays live to all calls, and is so until it
	// is deallocated. A block that is not live changes nothing. It may be called more
	// than once, makes no device call and does not block.
	Withhold(id BlockID, as BlockState)
}

// WithholderOf is the upstream if it is one, and otherwise one that does nothing.
func WithholderOf(upstream Resource) Withholder {
	if w, ok := upstream.(Withholder); ok {
		return w
	}
	return deaf{}
}

type deaf struct{}

func (deaf) Withhold(BlockID, BlockState) {}
