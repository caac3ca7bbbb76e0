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

	// frees is where retired blocks wait until they are released.
	frees freeQueue
	// pins are the host buffers of copies under way, oldest first.
	pins []pin

	// calls is what a census wants to know of the stream.
	calls callCounts
	// freeAttempts is how many frees ever began to queue something. One that failed may
	// have queued its waits.
	freeAttempts uint64

	// pinned is the length of pins.
	pinned atomic.Int64
	books  *streamBooks
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
