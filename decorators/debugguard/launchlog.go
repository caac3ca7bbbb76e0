package debugguard

import (
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// launchLog remembers the launches that passed lately, so that a finding can
// name those between two comparisons. A tick is drawn by every launch that
// ends and by every comparison that is queued.
type launchLog struct {
	ticks  atomic.Uint64
	shards [8]struct {
		mu   sync.Mutex
		ring []launchRecord
		next int
		// gone is the tick of the newest launch that had to go.
		gone uint64
	}
	each int
}

// launchRecord is a launch with the ticks between which it was enqueued.
type launchRecord struct {
	use          core.UseRecord
	began, ended uint64
}

func (l *launchLog) resize(n int) { l.each = max(1, n/len(l.shards)) }

// now is the last tick drawn, tick draws one.
func (l *launchLog) now() uint64  { return l.ticks.Load() }
func (l *launchLog) tick() uint64 { return l.ticks.Add(1) }

// add enters a launch that began after tick began and ends now.
func (l *launchLog) add(use core.UseRecord, began uint64) {
	e := launchRecord{use: use, began: began, ended: l.tick()}
	s := &l.shards[uint64(use.Stream)%uint64(len(l.shards))]
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
