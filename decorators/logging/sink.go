package logging

import "context"

// Sink takes records. All methods are safe for concurrent use.
type Sink interface {
	// Put takes one record. It must not block: what it can't take at once it
	// drops and counts.
	Put(r Record)
	// Flush waits until everything put before the call is written, or ctx
	// ends. It returns the first write error since the last Flush.
	Flush(ctx context.Context) error
	// Close flushes, bounded by ctx, and ends what the sink runs. Records
	// put afterwards are dropped and counted. It may be called again.
	Close(ctx context.Context) error
	// Dropped is the number of records lost so far.
	Dropped() uint64
}
