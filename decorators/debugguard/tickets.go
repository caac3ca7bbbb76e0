package debugguard

import (
	"reflect"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

// openLaunch is a launch between prepare and end that uses known blocks.
type openLaunch struct {
	// held are the records used, sorted by generation, each once.
	held []heldUse
	// use describes the launch as a whole; began is the tick before it.
	use   core.UseRecord
	began uint64
	// ending is set while somebody ends the launch.
	ending bool
}

// heldUse is one known block of an open launch. guarded is set if the launch
// is counted in the record's open intents.
type heldUse struct {
	rec        *record
	generation core.Generation
	guarded    bool
}

var openLaunches = sync.Pool{New: func() any { return new(openLaunch) }}

func (o *openLaunch) recycle() {
	clear(o.held)
	o.held, o.use, o.began, o.ending = o.held[:0], core.UseRecord{}, 0, false
	openLaunches.Put(o)
}

// tickets finds the open launch of a ticket. Intents are pooled, so nothing
// of one may be read with a ticket that was ended; a ticket as a whole names
// one opening only, and of several callers who end it one takes its launch.
type tickets struct {
	shards [16]ticketShard
}

type ticketShard struct {
	mu   sync.Mutex
	open map[core.Ticket]*openLaunch
	_    [48]byte // keeps neighbours on different cache lines
}

// shard picks the lock by the intent's address, without looking into it.
func (ts *tickets) shard(t core.Ticket) *ticketShard {
	return &ts.shards[mix(uint64(reflect.ValueOf(t.Intent()).Pointer()))%uint64(len(ts.shards))]
}

func (ts *tickets) put(t core.Ticket, o *openLaunch) {
	s := ts.shard(t)
	s.mu.Lock()
	if s.open == nil {
		s.open = map[core.Ticket]*openLaunch{}
	}
	s.open[t] = o
	s.mu.Unlock()
}

// take returns the launch of t, nil if there is none, to the one who ends it.
// It stays here until drop. taken is true if somebody else is ending it: the
// intent is theirs to read then, and the upstream must not be asked.
func (ts *tickets) take(t core.Ticket) (o *openLaunch, taken bool) {
	s := ts.shard(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	o = s.open[t]
	if o == nil || o.ending {
		return nil, o != nil
	}
	o.ending = true
	return o, false
}

// drop forgets the launch of t, which was ended.
func (ts *tickets) drop(t core.Ticket) {
	s := ts.shard(t)
	s.mu.Lock()
	delete(s.open, t)
	s.mu.Unlock()
}
