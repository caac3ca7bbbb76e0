package debugguard

import (
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/canary"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
)

// openLaunch is a launch between prepare and end that uses known blocks.
type openLaunch struct {
	// held are the records used, sorted by generation, each once; guarded is
	// set if one of them is.
	known   []knownUse
	guarded bool
	// use describes the launch as a whole; began is the tick before it.
	use   core.UseRecord
	began uint64
	// readsOnly is set if the runtime knows that it writes no device memory.
	readsOnly bool
	// ending is set while somebody ends the launch.
	ending bool
}

// knownUse is one known block of an open launch. guarded is set if the launch
// is counted in the record's open intents. Pointer and size are known once the
// use was noted.
type knownUse struct {
	rec        *ledger.Record
	generation core.Generation
	ptr, bytes uint64
	guarded    bool
}

var openLaunches = sync.Pool{New: func() any { return new(openLaunch) }}

func (o *openLaunch) recycle() {
	clear(o.known)
	o.known, o.guarded, o.use, o.began, o.readsOnly, o.ending = o.known[:0], false, core.UseRecord{}, 0, false, false
	openLaunches.Put(o)
}

// tickets finds the open launch of a ticket. Intents are pooled, so nothing
// of one may be read with a ticket that was ended; a ticket as a whole names
// one opening only, and of several callers who end it one takes its launch.
//
// A launch that uses no guarded block in a mode that keeps no suspects is not
// entered: what its end needs is read from the intent while that is open.
type tickets struct {
	shards [16]ticketShard
	count  atomic.Int64
}

type ticketShard struct {
	mu   sync.Mutex
	open map[core.Ticket]*openLaunch
	_    [48]byte // keeps neighbours on different cache lines
}

// shard picks the lock by the intent's address, without looking into it.
func (ts *tickets) shard(t core.Ticket) *ticketShard {
	return &ts.shards[canary.Mix(uint64(reflect.ValueOf(t.Intent()).Pointer()))%uint64(len(ts.shards))]
}

func (ts *tickets) put(t core.Ticket, o *openLaunch) {
	s := ts.shard(t)
	s.mu.Lock()
	if s.open == nil {
		s.open = map[core.Ticket]*openLaunch{}
	}
	s.open[t] = o
	ts.count.Add(1)
	s.mu.Unlock()
}

// beginEnd returns the launch of t, nil if there is none, to the one who ends it.
// It stays here until drop. ending is true if another call is ending it: the
// intent is theirs to read then, and the upstream must not be asked.
func (ts *tickets) beginEnd(t core.Ticket) (o *openLaunch, ending bool) {
	if ts.count.Load() == 0 {
		return nil, false
	}
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
	ts.count.Add(-1)
	s.mu.Unlock()
}
