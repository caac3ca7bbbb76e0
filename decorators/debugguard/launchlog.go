package debugguard

import (
	"cmp"
	"slices"
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
	s.ring[s.next] = e
	s.next = (s.next + 1) % l.each
}

// window is the time between the good comparison and the bad one, both of
// which ran on stream.
type window struct {
	from, to uint64
	stream   core.StreamID
	// few, if not zero, is the limit where no more were enqueued within.
	few int
}

// suspects returns at most limit launches that may have written within w:
// first those that touched the victim, which uses lists, then those of the
// comparison's own stream, which all had run, then the other ones enqueued
// within w, then on each other stream the last one enqueued before, which may
// still have been running. Each group is newest first. The guard's own are not
// in the log.
func (l *launchLog) suspects(w window, uses []core.UseRecord, limit int) []core.UseRecord {
	inside, before := l.split(w)
	if w.few > 0 && len(inside) <= w.few {
		limit = min(limit, w.few)
	}
	touched := func(e launchRecord) bool {
		return slices.ContainsFunc(uses, func(u core.UseRecord) bool {
			return u.LaunchID != 0 && u.LaunchID == e.use.LaunchID
		})
	}
	rank := func(e launchRecord) int {
		switch {
		case touched(e):
			return 0
		case e.use.Stream == w.stream:
			return 1
		default:
			return 2
		}
	}
	slices.SortFunc(inside, func(a, b launchRecord) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.ended, a.ended))
	})
	slices.SortFunc(before, func(a, b launchRecord) int { return cmp.Compare(b.ended, a.ended) })
	var found []core.UseRecord
	for _, e := range append(inside, before...) {
		if len(found) == limit {
			break
		}
		found = append(found, e.use)
	}
	return found
}

// split returns the launches enqueued within w, and of each stream that has
// none of them and is not w's own the last one before w.
func (l *launchLog) split(w window) (inside, before []launchRecord) {
	latest := map[core.StreamID]launchRecord{}
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for _, e := range s.ring {
			switch {
			case e.ended > w.from && e.began < w.to:
				inside = append(inside, e)
			case e.ended <= w.from && e.use.Stream != w.stream && e.ended > latest[e.use.Stream].ended:
				latest[e.use.Stream] = e
			}
		}
		s.mu.Unlock()
	}
	for _, e := range inside {
		delete(latest, e.use.Stream)
	}
	for _, e := range latest {
		before = append(before, e)
	}
	return inside, before
}
