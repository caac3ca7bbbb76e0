package core

// Tracked is device memory that a [LaunchRecorder] can be told of: a typed
// slice, a view, a column, a Block or a bare BlockID.
type Tracked interface {
	// BlockID is the block that the memory lies in. Its generation is [NoBytes] if
	// the memory has no bytes, so that there is nothing to fence, and [NoBlock] if it
	// has no block of a runtime, so that it can't be fenced.
	BlockID() BlockID
}

// BlockID makes a BlockID usable where memory is expected.
func (id BlockID) BlockID() BlockID { return id }

// BlockID makes a Block usable where memory is expected.
func (b Block) BlockID() BlockID { return b.ID }
