package cuda

import (
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// stream is a physical stream of the driver: its order, which is the engine's, and what
// the runtime keeps of it under the same lock. Leases come and go on it; order and
// pending frees belong to the stream.
type stream struct {
	_ [64]byte // streams share no cache line
	fence.Stream
	drv   driver.Driver
	table *streamTable

	// queue is the frees that are not known to be completed, oldest first; mark
	// is the recorded point behind its first marked entries.
	queue  []pending
	mark   *fence.Point
	marked int
	// dequeuedBytes is the bytes of the frees that left queue.
	dequeuedBytes uint64
	// pins are the host buffers of copies under way, oldest first.
	pins []pin

	// operations and freedBytes count since the last look at queue.
	operations int
	freedBytes uint64
	// calls is what a census wants to know of the stream.
	calls callCounts
	// freeAttempts is how many frees ever began to queue something. One that failed may
	// have queued its waits.
	freeAttempts uint64

	// queued is the length of queue, pinned that of pins.
	queued, pinned atomic.Int64
	frees          freeCounters
	books          *streamBooks
	// adopted: the stream is the caller's. It does not change.
	adopted bool
	// captured are the streams of the capture that began here; stuck: it
	// could not be ended. It changes under the stream's lock.
	captured []*stream
	stuck    atomic.Bool
	// lease is the last id that the stream was leased under, 0 if none was.
	lease atomic.Uint64
	_     [64]byte
}
