package core

// Tracked is device memory that a [LaunchRecorder] can be told of: a typed
// slice, a view, a column, a Block or a bare BlockID.
type Tracked interface {
	// Tracking says what the runtime knows of the memory.
	Tracking() Tracking
}

// TrackingKind says how the runtime relates to some memory.
type TrackingKind uint8

// The kinds of tracking.
const (
	// TrackedBlock: a block of a runtime; its uses can be fenced.
	TrackedBlock TrackingKind = iota + 1
	// TrackedEmpty: no bytes, so nothing to fence. Recorders skip it.
	TrackedEmpty
	// Untracked: allocated around the runtime; no identity.
	Untracked
	// TrackedExternal: another framework's memory (DLPack, Arrow device).
	TrackedExternal
)

// Tracking is the runtime's view of some memory.
type Tracking struct {
	Kind TrackingKind
	// Block is the identity, if Kind is TrackedBlock.
	Block BlockID
}

// Tracking makes a BlockID usable where memory is expected.
func (id BlockID) Tracking() Tracking { return Tracking{Kind: TrackedBlock, Block: id} }

// Tracking makes a Block usable where memory is expected.
func (b Block) Tracking() Tracking { return b.ID.Tracking() }
