package fence

import "sync/atomic"

// Counts are what the launches of one stream, or of several that share it, came to.
// They are statistics: nothing is decided by them.
type Counts struct {
	// Launches were fenced, CrossStream of them came after a write of another
	// stream, Aborts were withdrawn by their caller.
	Launches, CrossStream, Aborts atomic.Uint64
	// Waits were queued, Elided were not needed.
	Waits, Elided atomic.Uint64
	// Fails are operations that a call of the driver's failed.
	Fails atomic.Uint64
}
