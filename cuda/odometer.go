package cuda

import (
	"slices"
	"sync"
	"sync/atomic"
)

// odometer counts the bytes of frees: queued, known to be passed by the
// device, and settled in the books. Passed moves before a listener is told,
// so that bytes are never both released and still lendable.
//
// Batches of frees may be released by several reapers at once. Settled says
// up to which free all are released, so a batch that overtook an older one
// counts when that is done.
type odometer struct {
	queued, passed, settled atomic.Uint64
	// unmapped are isolated blocks', whose bytes no later allocation can use in
	// stream order: they are queued and passed when they are back.
	unmapped atomic.Uint64

	mu       sync.Mutex
	overtook []stretch
}

// stretch is the frees between two readings of queued.
type stretch struct{ from, to uint64 }

func (o *odometer) settle(s stretch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.from != o.settled.Load() {
		o.overtook = append(o.overtook, s)
		return
	}
	for {
		o.settled.Store(s.to)
		next := slices.IndexFunc(o.overtook, func(later stretch) bool { return later.from == s.to })
		if next < 0 {
			return
		}
		s = o.overtook[next]
		o.overtook = slices.Delete(o.overtook, next, next+1)
	}
}
