package debugguard

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/ring"
)

// launchLog has the open launches, and remembers the latest that have ended, so that
// a finding can name those between two comparisons. A tick is drawn by every launch that
// ends and by every comparison that is queued.
type launchLog struct {
	ticks  atomic.Uint64
	_      [56]byte // keeps the ticks, which every launch writes, off the line of what they read
	each   int
	shards [8]launchShard

	// claims is set for good with the first launch whose ticket the guard claims.
	claims atomic.Bool
	// seen are the launches that intents keep: an intent has one for as long as it is used.
	mu   sync.Mutex
	seen []weak.Pointer[openLaunch]
}

// launchShard is the launches of some streams.
type launchShard struct {
	mu     sync.Mutex
	newest ring.Ring[launchRecord]
	// gone is the tick of the newest launch that had to go.
	gone uint64
	_    [80]byte // keeps neighbours on different cache lines
}

func (l *launchLog) shard(s core.StreamID) *launchShard {
	return &l.shards[uint64(s)%uint64(len(l.shards))]
}

// launchRecord is a launch with the ticks between which it was enqueued.
type launchRecord struct {
	// use has no time: it is worked out of at when somebody asks, and not at each launch.
	use core.UseRecord
	at  monotime.Instant
	// blocks are the first of those that it declared.
	blocks       [4]core.Generation
	began, ended uint64
	// done is the tick by which the device was seen to have done it, 0 if it was not.
	done uint64
	// readsOnly is set if the runtime knows that it writes no device memory.
	readsOnly bool
}

func (l *launchLog) resize(n int) { l.each = max(1, n/len(l.shards)) }

// enter makes a launch known whose intent will be used again.
func (l *launchLog) enter(o *openLaunch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(slices.DeleteFunc(l.seen, func(p weak.Pointer[openLaunch]) bool { return p.Value() == nil }), weak.Make(o))
}

// writing reports whether an open launch writes a block.
func (l *launchLog) writing(g core.Generation) (writes bool) {
	l.mu.Lock()
	seen := slices.Clone(l.seen)
	l.mu.Unlock()
	for _, p := range seen {
		if o := p.Value(); o != nil {
			o.in.WhileOpen(func() { writes = writes || o.id == o.in.ID && o.in.Writes(g) })
		}
	}
	return writes
}

// snapshot returns the launches that the log has, and the tick of the newest one that
// it has forgotten.
func (l *launchLog) snapshot() (launches []launchRecord, gone uint64) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		launches, gone = append(launches, s.newest.List()...), max(gone, s.gone)
		s.mu.Unlock()
	}
	for i := range launches {
		if e := &launches[i]; e.at != 0 {
			e.use.Time = e.at.Time()
		}
	}
	return launches, gone
}

// now is the last tick drawn, tick draws one.
func (l *launchLog) now() uint64  { return l.ticks.Load() }
func (l *launchLog) tick() uint64 { return l.ticks.Add(1) }

// add logs a launch whose work is enqueued, where it stays: what is copied once more costs more than the rest.
func (l *launchLog) add(o *openLaunch, span core.SpanRef) {
	s := l.shard(o.in.Stream)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, in := s.place(l), o.in
	u := &e.use
	u.LaunchID, u.Launch, u.Stream = in.ID, in.Launch, in.Stream
	u.Span, u.Caller, u.Time, u.Access = span, o.caller, time.Time{}, 0
	e.blocks = [4]core.Generation{}
	in.FirstTags(&u.Tags)
	for i := range in.Uses {
		if i < len(e.blocks) {
			e.blocks[i] = in.Uses[i].Block.Generation
		}
		u.Access = u.Access.Combine(in.Uses[i].Access)
	}
	e.at, e.began, e.done, e.readsOnly = o.at, o.began, 0, o.readsOnly
}

// addRecorded logs work that was enqueued without a launch.
func (l *launchLog) addRecorded(e *launchRecord) {
	s := l.shard(e.use.Stream)
	s.mu.Lock()
	defer s.mu.Unlock()
	place := s.place(l)
	e.ended = place.ended
	*place = *e
}

// place is where a launch that ends now is to be written: ended is set, and the rest is that
// of the one that had to go. s.mu must be held.
func (s *launchShard) place(l *launchLog) *launchRecord {
	place, _ := s.newest.Next(l.each)
	s.gone = max(s.gone, place.ended)
	place.ended = l.tick()
	return place
}

// completed notes that the device has done what ended on a stream up to a tick.
func (l *launchLog) completed(stream core.StreamID, to uint64) {
	now := l.tick() // a window that was begun is older
	s := l.shard(stream)
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.newest.Newest() {
		if e.use.Stream == stream && e.ended <= to && e.done == 0 {
			e.done = now
		}
	}
}
