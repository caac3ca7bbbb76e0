package path

import (
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

// Lane is what a stream owns on the host: its lock, the operation that is served under it, and a
// part for each layer. Leases come and go on it. The zero value is ready for use; it must not be copied.
type Lane struct {
	mu sync.Mutex
	op Op
	// begun counts the allocations and the frees that came here.
	begun    [2]uint8
	known    known
	ordinary ordinary
	// parts are set once each, by the layers, under the lock.
	parts [maxLayers]any
}

// maxLayers is for how many layers there is room over one backend, that among them.
const maxLayers = 8

// BackendPart is the number of the backend.
const BackendPart = 0

// Lock takes the lane's lock, which is that of its stream, and settles the lane: no block is kept
// then.
func (l *Lane) Lock() {
	l.mu.Lock()
	l.SettleNow()
}

// TryLock is Lock if the lock is free, and reports whether it was.
func (l *Lane) TryLock() bool {
	if !l.mu.TryLock() {
		return false
	}
	l.SettleNow()
	return true
}

// Unlock gives the lock back.
func (l *Lane) Unlock() { l.mu.Unlock() }

// Part is what the layer of that number keeps in the lane, nil if it was never set.
func (l *Lane) Part(number int) any { return l.parts[number] }

// SetPart sets it. The lock must be held, or the lane be known to no other goroutine.
func (l *Lane) SetPart(number int, part any) { l.parts[number] = part }

// Lanes finds lanes: those of the leases of one device.
type Lanes interface {
	// Lane is that of the stream on which the lease is now, nil if it is on none of its own. It takes no lock.
	Lane(lease core.StreamID) *Lane
	// Record is that of a block of a lane, which is locked, with what the backend knows it by; nil if
	// the lane has no such block.
	Record(*Lane, core.Generation) (rec *Record, engine any)
}

// sharedLanes is how many lanes a path has for streams that have none of their own: those of a
// resource that is no backend of this module, adopted streams, and leases that have ended.
const sharedLanes = 64

// withShared are lanes, and shared ones for the streams that have none.
type withShared struct {
	Lanes  // nil if no stream has one
	shares shares
	shared [sharedLanes]struct {
		Lane
		_ [64]byte // lanes share no cache line
	}
}

func (w *withShared) of(lease core.StreamID) *Lane {
	if w.Lanes != nil {
		if l := w.Lane(lease); l != nil {
			return l
		}
	}
	return &w.shared[uint64(lease)%sharedLanes].Lane
}

// record is that of a block of a lane, nil if the lane is shared.
func (w *withShared) record(l *Lane, g core.Generation) (*Record, any) {
	if l.parts[BackendPart] == nil {
		return nil, nil
	}
	return w.Record(l, g)
}
