package debugguard

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/canary"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
)

// openLaunch is a launch between prepare and end that uses known blocks.
type openLaunch struct {
	// record describes the launch as a whole.
	record launchRecord
	// known are the records used, sorted by generation; guarded is set if one of them
	// is. A block that the launch names twice stands there twice.
	known   []knownUse
	guarded bool
	// ending is set while somebody ends the launch.
	ending bool
}

// knownUse is one known block of an open launch. One that is guarded is counted in its
// record's open intents. Pointer and size are known once the use was noted.
type knownUse struct {
	rec        *ledger.Record
	generation core.Generation
	ptr, bytes uint64
}

func (h *knownUse) guarded() bool { return h.rec.Guard != nil }

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

// openLaunches are those of which nothing is known, until recycle.
var openLaunches = sync.Pool{New: func() any { return new(openLaunch) }}

func (o *openLaunch) recycle() {
	clear(o.known)
	*o = openLaunch{known: o.known[:0]}
	openLaunches.Put(o)
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
// It stays here until drop. It refuses a ticket that another call is ending: the intent
// is theirs to read then, and the upstream must not be asked.
func (ts *tickets) beginEnd(op string, t core.Ticket) (*openLaunch, error) {
	if ts.count.Load() == 0 {
		return nil, nil
	}
	s := ts.shard(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.open[t]
	switch {
	case o == nil:
		return nil, nil
	case o.ending:
		return nil, &core.StreamMisuseError{Op: op, Reason: "the ticket is being ended by another call: each ticket is finished or aborted once"}
	}
	o.ending = true
	return o, nil
}

// drop forgets the launch of t, which was ended.
func (ts *tickets) drop(t core.Ticket) {
	s := ts.shard(t)
	s.mu.Lock()
	delete(s.open, t)
	ts.count.Add(-1)
	s.mu.Unlock()
}

// writing reports whether a launch that is announced writes a block.
func (ts *tickets) writing(g core.Generation) bool {
	for i := range ts.shards {
		if ts.shards[i].writing(g) {
			return true
		}
	}
	return false
}

func (s *ticketShard) writing(g core.Generation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t, o := range s.open {
		if o.ending { // its work is enqueued, and the intent not ours to read
			continue
		}
		for i := range t.Intent().Uses {
			if u := &t.Intent().Uses[i]; u.Block.Generation == g && u.Access.Writes() {
				return true
			}
		}
	}
	return false
}

// retainBlocks looks up every block of a launch. A guarded one counts as in use
// from here on, so that a free in the meantime waits.
func (r *Resource) retainBlocks(o *openLaunch, req *core.UseRequest) error {
	for i := range req.Uses {
		u := &req.Uses[i]
		rec, live := r.glance(u.Block)
		if rec == nil {
			continue
		}
		if !live || rec.Guard != nil {
			var err error
			if rec, err = r.usable("PrepareUse", u.Block, req.Stream, req.Launch); err != nil {
				return err
			}
			if rec == nil {
				continue
			}
			if rec.Guard != nil {
				rec.Guard.Open++
				o.guarded = true
			}
			rec.Mu.Unlock()
		}
		o.known = append(o.known, knownUse{rec: rec, generation: u.Block.Generation})
	}
	return nil
}

// glance finds the record of a block without a lock, nil if the ledger does
// not know it, and says whether the block is live.
func (r *Resource) glance(id core.BlockID) (rec *ledger.Record, live bool) {
	if id.Ordinal != r.ordinal {
		return nil, false
	}
	if rec = r.ledger.Get(id); rec == nil {
		return nil, false
	}
	known, live := rec.Peek(id.Generation)
	if !known { // another block's by now
		return nil, false
	}
	return rec, live
}

// usable returns the record of a block that is to be used, locked, or nil if
// the ledger does not know it and the upstream must judge.
func (r *Resource) usable(op string, id core.BlockID, stream core.StreamID, launch string) (*ledger.Record, error) {
	if id.Ordinal != r.ordinal {
		return nil, nil
	}
	rec := r.ledger.Lock(id)
	if rec == nil {
		return nil, nil
	}
	switch {
	case rec.State() != core.Live && rec.Guard == nil && r.Mode() == Off:
		rec.Mu.Unlock()
		return nil, nil
	case rec.State() != core.Live:
		return nil, r.staleUse(late{op: op, id: id, stream: stream, launch: launch}, rec)
	case rec.Guard != nil && !rec.Guard.Layout.Contains(id.Ptr):
		return nil, r.wildPointer(op, id, stream, rec)
	}
	return rec, nil
}

// begin takes over what the opened intent knows.
func (r *Resource) begin(o *openLaunch, in *core.Intent) {
	o.record.use = core.UseRecord{LaunchID: in.ID, Launch: in.Launch, Stream: in.Stream, Caller: o.record.use.Caller}
	if r.Mode() >= Sample { // it may become a suspect
		o.record.use.Time = r.ledger.Clock.Now()
		o.record.use.Tags = in.FirstTags()
	}
	for i := range in.Uses {
		o.record.use.Access = o.record.use.Access.Combine(in.Uses[i].Access)
	}
	for i := 1; i < len(o.known); i++ {
		if o.known[i-1].generation > o.known[i].generation {
			slices.SortFunc(o.known, func(a, b knownUse) int { return cmp.Compare(a.generation, b.generation) })
			return
		}
	}
}

// noteUses adds the launch to the uses of its known blocks. Both lists are
// sorted by generation. It fails if a block was freed since it was looked up,
// which can be while the upstream waited for another intent.
func (r *Resource) noteUses(o *openLaunch, in *core.Intent) error {
	if len(o.known) == 0 {
		return nil
	}
	note, left := r.ledger.Pack(o.record.use), o.known
	for i := range in.Uses {
		u := &in.Uses[i]
		for len(left) > 0 && left[0].generation < u.Block.Generation {
			left = left[1:]
		}
		if len(left) == 0 {
			return nil
		}
		h := &left[0]
		if h.generation != u.Block.Generation {
			continue
		}
		h.rec.Mu.Lock()
		if h.rec.Generation() != h.generation {
			h.rec.Mu.Unlock()
			continue
		}
		if h.guarded() && h.rec.State() != core.Live {
			return r.staleUse(late{op: "PrepareUse", id: u.Block, stream: in.Stream, launch: in.Launch, number: in.ID}, h.rec)
		}
		h.ptr, h.bytes = h.rec.Ptr, h.rec.Bytes
		unwritten := h.rec.ReadsUnwritten(u.Access)
		h.rec.Note(note.As(u.Access))
		if unwritten {
			r.readUnwritten(o, u, h.rec)
			continue
		}
		h.rec.Mu.Unlock()
	}
	return nil
}

// noteSpans completes the uses with the spans that a tracing layer set since.
func (r *Resource) noteSpans(o *openLaunch, in *core.Intent) {
	for i := range in.Uses {
		u := &in.Uses[i]
		if u.Span.IsZero() {
			continue
		}
		if o != nil {
			o.record.use.Span = u.Span
		}
		if rec := r.ledger.Lock(u.Block); rec != nil {
			rec.Traced(in.ID, u.Span)
			rec.Mu.Unlock()
		}
	}
}

// retract takes the launch out of its blocks' uses again.
func (r *Resource) retract(o *openLaunch) {
	for _, h := range o.known {
		h.rec.Mu.Lock()
		if h.rec.Generation() == h.generation {
			h.rec.Retract(o.record.use.LaunchID)
		}
		h.rec.Mu.Unlock()
	}
}

// dropBlocks ends what retainBlocks began, does the frees that waited for it,
// and recycles o.
func (r *Resource) dropBlocks(ctx context.Context, o *openLaunch) {
	for _, h := range o.known {
		if !h.guarded() {
			continue
		}
		h.rec.Mu.Lock()
		h.rec.Guard.Open--
		last := h.rec.Guard.Open == 0 && h.rec.Guard.FreeBlocked
		if last {
			h.rec.Guard.FreeBlocked = false
		}
		h.rec.Mu.Unlock()
		if last {
			r.freeUnblocked(ctx, h.rec)
		}
	}
	o.recycle()
}

// logLaunch keeps the launch as a possible suspect.
func (r *Resource) logLaunch(e launchRecord) {
	if r.Mode() >= Sample {
		r.launches.add(e)
	}
}
