package core

// Isolator is a backend that gives blocks mappings of their own. It is for
// inspection, found with [Find].
type Isolator interface {
	// IsolationGranularity is the unit in bytes, a power of two, in which such
	// a block takes memory of the device; 0 without [Isolation]. A layer that
	// asks for [Request.Isolated] rounds Bytes up to it, so that the budgets
	// below charge what the device gives. It makes no device call.
	IsolationGranularity() uint64
}
