package debugguard

import (
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// launchLog remembers the latest launches, so that a finding can
// name those between two comparisons. A tick is drawn by every launch that
// ends and by every comparison that is queued.
type launchLog struct {
	ticks  atomic.Uint64
	shards [8]launchShard
	each   int
}

type launchShard struct {
	mu   sync.Mutex
	ring []launchRecord
	next int
	// gone is the tick of the newest launch that had to go.
	gone uint64
}

func (l *launchLog) shard(s core.StreamID) *launchShard {
	return &l.shards[uint64(s)%uint64(len(l.shards))]
}

// launchRecord is a launch with the ticks between which it was enqueued.
type launchRecord struct {
	use          core.UseRecord
	began, ended uint64
	// done is the tick by which the device was seen to have done it, 0 if it was not.
	done uint64
	// readsOnly is set if the runtime knows that it writes no device memory.
	readsOnly bool
}

func (l *launchLog) resize(n int) { l.each = max(1, n/len(l.shards)) }

// now is the last tick drawn, tick draws one.
func (l *launchLog) now() uint64  { return l.ticks.Load() }
func (l *launchLog) tick() uint64 { return l.ticks.Add(1) }

// add enters a launch that ends now.
func (l *launchLog) add(e launchRecord) {
	e.ended = l.tick()
	s := l.shard(e.use.Stream)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ring) < l.each {
		s.ring = append(s.ring, e)
		return
	}
	s.gone = max(s.gone, s.ring[s.next].ended)
	s.ring[s.next] = e
	s.next = (s.next + 1) % l.each
}

// completed notes that the device has done what ended on a stream up to a tick.
func (l *launchLog) completed(stream core.StreamID, to uint64) {
	now := l.tick() // a window that was begun is older
	s := l.shard(stream)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.ring {
		if e := &s.ring[i]; e.use.Stream == stream && e.ended <= to && e.done == 0 {
			e.done = now
		}
	}
}
