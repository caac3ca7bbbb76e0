package cuda

import (
	"slices"
	"sync"
	"sync/atomic"
)

// freeCounters counts the bytes of one stream's frees at three stages: queued on
// the stream, completed by the device, and released from the books. completed
// rises before a listener is told, so that no byte is both released and still
// lendable.
//
// Several reapers may release batches of frees at the same time. released says
// up to which free everything is released: a batch that overtakes an older one
// is counted when the older one is done.
type freeCounters struct {
	queued, completed, released atomic.Uint64
	// unmapped is the bytes of isolated blocks, which no later allocation can
	// use in stream order. Outside they count as queued and completed at once,
	// when the memory is back.
	unmapped atomic.Uint64

	mu       sync.Mutex
	overtook []freeRange
}

// freeRange is the frees between two readings of queued.
type freeRange struct{ from, to uint64 }

// noteReleased counts the frees of batch as released from the books.
func (c *freeCounters) noteReleased(batch freeRange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if batch.from != c.released.Load() {
		c.overtook = append(c.overtook, batch)
		return
	}
	for {
		c.released.Store(batch.to)
		next := slices.IndexFunc(c.overtook, func(later freeRange) bool { return later.from == batch.to })
		if next < 0 {
			return
		}
		batch = c.overtook[next]
		c.overtook = slices.Delete(c.overtook, next, next+1)
	}
}
