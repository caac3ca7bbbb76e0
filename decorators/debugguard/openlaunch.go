package debugguard

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// openLaunch is a launch between prepare and end that uses known blocks.
//
// What the intent has stays there until the launch ends, and goes into the log from there.
type openLaunch struct {
	// id, name and stream are the intent's.
	id     uint64
	name   string
	stream core.StreamID
	// access is that of all uses together, span one that a tracing layer gave a use, and caller
	// that in which the launch was prepared.
	access core.Access
	span   core.SpanRef
	caller core.SpanContext
	// at and began are when and at which tick it was prepared.
	at    monotime.Instant
	began uint64
	// readsOnly is set if the runtime knows that it writes no device memory.
	readsOnly bool
	// known are the records used, sorted by generation; guarded is set if one of them
	// is. A block that the launch names twice stands there twice.
	known   []knownUse
	guarded bool
	// given are those that it was given a pointer into and does not declare.
	given []knownUse
	// of is the guard whose launch this is, and ticket its ticket, once it was entered.
	// below is what another guard, below this one, keeps of it.
	of     *Resource
	ticket core.Ticket
	below  any
	// ending is set while somebody ends the launch. It belongs to who looks at the open
	// ticket.
	ending bool
	// next and before are its neighbours in the list of its stream's open launches.
	next, before *openLaunch
}

// knownUse is one known block of an open launch. One that is guarded is counted in its
// record's open intents. Pointer and size are known once the use was noted.
type knownUse struct {
	rec        *ledger.Record
	generation core.Generation
	ptr, bytes uint64
}

func (h *knownUse) guarded() bool { return h.rec.Guard != nil }

// openLaunches are those of which nothing is known, until recycle.
var openLaunches = sync.Pool{New: func() any { return new(openLaunch) }}

// use describes the launch as a whole, as far as it is known before its end.
func (o *openLaunch) use() core.UseRecord {
	return core.UseRecord{LaunchID: o.id, Launch: o.name, Stream: o.stream, Access: o.access, Caller: o.caller}
}

func (o *openLaunch) recycle() {
	for i := range o.known {
		h := &o.known[i] // most have one, for which a call to clear takes longer
		*h = knownUse{}
	}
	*o = openLaunch{known: o.known[:0]}
	openLaunches.Put(o)
}

// enter makes a prepared launch one whose end will be noticed, if it must be: one that
// uses no guarded block in a mode that keeps no suspects is not entered, and what its
// end needs is read from the intent while that is open.
func (r *Resource) enter(t core.Ticket, o *openLaunch) bool {
	if len(o.known) == 0 && !r.hunting().Bisect {
		if r.Mode() >= Sample {
			r.launches.add(o, t.Intent())
		}
		return false
	}
	if !o.guarded && r.Mode() < Sample {
		return false
	}
	in := t.Intent()
	o.of, o.ticket, o.below = r, t, in.Guard
	in.Guard = o
	r.launches.open(o)
	return true
}

// ownLaunch is what the guard keeps with an intent, nil if nothing.
func (r *Resource) ownLaunch(in *core.Intent) *openLaunch {
	for o, ok := in.Guard.(*openLaunch); ok; o, ok = o.below.(*openLaunch) {
		if o.of == r {
			return o
		}
	}
	return nil
}

// beginEnd returns the launch of t, nil if none was entered, to the one who ends it.
// It refuses a ticket that another call is ending: the intent is theirs to read then,
// and the upstream must not be asked.
func (r *Resource) beginEnd(op string, t core.Ticket) (o *openLaunch, err error) {
	if !r.launches.entered.Load() {
		return nil, nil
	}
	again := false
	t.WhileOpen(func(in *core.Intent) {
		if o = r.ownLaunch(in); o != nil {
			again, o.ending = o.ending, true
		}
	})
	if again {
		return nil, &core.StreamMisuseError{Op: op, Reason: "the ticket is being ended by another call: each ticket is finished or aborted once"}
	}
	return o, nil
}

// forget takes a launch off a ticket that the upstream has not ended, although it must.
func (r *Resource) forget(o *openLaunch) {
	if !o.ticket.IsOpen() {
		return
	}
	o.ticket.WhileOpen(func(in *core.Intent) {
		for at := &in.Guard; *at != nil; {
			other, ok := (*at).(*openLaunch)
			if !ok || other == o {
				*at = o.below
				return
			}
			at = &other.below
		}
	})
}

// writes reports whether the launch is not being ended, which enqueues its work, and
// declares to write a block.
func (o *openLaunch) writes(g core.Generation) (writes bool) {
	o.ticket.WhileOpen(func(in *core.Intent) {
		for i := range in.Uses { // by pointer: a tracing layer may be setting their spans
			u := &in.Uses[i]
			writes = writes || !o.ending && u.Block.Generation == g && u.Access.Writes()
		}
	})
	return writes
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
			if rec, err = r.usable(late{op: "PrepareUse", id: u.Block, stream: req.Stream, launch: req.Launch, uses: req.Uses}); err != nil {
				return err
			}
			if rec == nil {
				continue
			}
			if rec.Guard != nil {
				rec.Guard.Open++
				o.guarded = true
			}
			rec.Unlock()
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
func (r *Resource) usable(use late) (*ledger.Record, error) {
	id := use.id
	if id.Ordinal != r.ordinal {
		return nil, nil
	}
	rec := r.ledger.Lock(id)
	if rec == nil {
		return nil, nil
	}
	switch {
	case rec.State() != core.Live && rec.Guard == nil && r.Mode() == Off:
		rec.Unlock()
		return nil, nil
	case rec.State() != core.Live:
		return nil, r.staleUse(use, rec)
	case rec.Guard != nil && !rec.Guard.Layout.Contains(id.Ptr):
		return nil, r.wildPointer(use.op, id, use.stream, rec)
	}
	return rec, nil
}

// begin takes over what the opened intent knows.
func (r *Resource) begin(o *openLaunch, in *core.Intent) {
	o.id, o.name, o.stream, o.at = in.ID, in.Launch, in.Stream, monotime.Now()
	for i := range in.Uses {
		o.access = o.access.Combine(in.Uses[i].Access)
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
func (r *Resource) noteUses(o *openLaunch, in *core.Intent, uses []core.Use) error {
	if len(o.known) == 0 {
		return nil
	}
	note, left := r.ledger.Pack(o.id, o.name, o.stream, o.access, o.at), o.known
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
		if !h.rec.Lock(h.generation) {
			continue
		}
		if h.guarded() && h.rec.State() != core.Live {
			return r.staleUse(late{op: "PrepareUse", id: u.Block, stream: in.Stream, launch: in.Launch, number: in.ID, uses: uses}, h.rec)
		}
		h.ptr, h.bytes = h.rec.Ptr, h.rec.Bytes
		unwritten := h.rec.ReadsUnwritten(u.Access)
		h.rec.Note(note.As(u.Access))
		if unwritten {
			r.readUnwritten(o, u, h.rec)
			continue
		}
		h.rec.Unlock()
	}
	return nil
}

// noteSpans completes the uses with the spans that a tracing layer set since.
func (r *Resource) noteSpans(o *openLaunch, in *core.Intent) {
	for i := range in.Uses {
		u := &in.Uses[i]
		if u.Span == (core.SpanRef{}) { // in place: IsZero would copy it
			continue
		}
		if o != nil {
			o.span = u.Span
		}
		if rec := r.ledger.Lock(u.Block); rec != nil {
			rec.Traced(in.ID, u.Span)
			rec.Unlock()
		}
	}
}

// retract takes the launch out of its blocks' uses again.
func (r *Resource) retract(o *openLaunch) {
	for _, uses := range [...][]knownUse{o.known, o.given} {
		for _, h := range uses {
			if h.rec.Lock(h.generation) {
				h.rec.Retract(o.id)
				h.rec.Unlock()
			}
		}
	}
}

// dropBlocks ends what retainBlocks began, does the frees that waited for it,
// and recycles o.
func (r *Resource) dropBlocks(ctx context.Context, o *openLaunch) {
	if o.guarded {
		r.dropGuarded(ctx, o)
		return
	}
	o.recycle()
}

func (r *Resource) dropGuarded(ctx context.Context, o *openLaunch) {
	for _, h := range o.known {
		if !h.guarded() {
			continue
		}
		h.rec.LockGuarded()
		h.rec.Guard.Open--
		last := h.rec.Guard.Open == 0 && h.rec.Guard.FreeBlocked
		if last {
			h.rec.Guard.FreeBlocked = false
		}
		h.rec.Unlock()
		if last {
			defer r.freeUnblocked(ctx, h.rec) //nolint:gocritic // all of them, also where code of the user's panics
		}
	}
	o.recycle()
}
