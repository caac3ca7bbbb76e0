package debugguard

import (
	"cmp"
	"context"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
)

// pin looks up every block of a launch. A guarded one is counted as in use
// from here on, so that a free meanwhile waits.
func (r *Resource) pin(o *openLaunch, req *core.UseRequest) error {
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
		o.known = append(o.known, knownUse{rec: rec, generation: u.Block.Generation, guarded: rec.Guard != nil})
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

// begin takes over what the opened intent knows, and folds the blocks that
// the launch names twice.
func (r *Resource) begin(o *openLaunch, in *core.Intent) {
	o.use = core.UseRecord{LaunchID: in.ID, Launch: in.Launch, Stream: in.Stream}
	if r.Mode() >= Sample { // it may become a suspect
		o.use.Time = r.ledger.Clock.Time(r.ledger.Clock.Instant())
		o.use.Tags = in.FirstTags()
	}
	for i := range in.Uses {
		o.use.Access = o.use.Access.Combine(in.Uses[i].Access)
	}
	for i := 1; i < len(o.known); i++ {
		if o.known[i-1].generation >= o.known[i].generation {
			o.fold()
			return
		}
	}
}

// fold sorts the blocks by generation and drops those named before.
func (o *openLaunch) fold() {
	slices.SortFunc(o.known, func(a, b knownUse) int { return cmp.Compare(a.generation, b.generation) })
	kept := 0
	for i, h := range o.known {
		if kept > 0 && o.known[kept-1].generation == h.generation {
			if h.guarded {
				h.rec.Mu.Lock()
				h.rec.Guard.Open--
				h.rec.Mu.Unlock()
			}
			continue
		}
		o.known[kept] = o.known[i]
		kept++
	}
	clear(o.known[kept:])
	o.known = o.known[:kept]
}

// noteUses adds the launch to the uses of its known blocks. Both lists are
// sorted by generation. It fails if a block was freed since it was looked up,
// which can be while the upstream waited for another intent.
func (r *Resource) noteUses(o *openLaunch, in *core.Intent) error {
	if len(o.known) == 0 {
		return nil
	}
	note := ledger.PackUse(o.use, r.ledger.Names.Number(in.Launch), r.ledger.Clock.Instant())
	next := 0
	for i := range in.Uses {
		u := &in.Uses[i]
		if next == len(o.known) {
			return nil
		}
		h := &o.known[next]
		if h.generation != u.Block.Generation {
			continue
		}
		next++
		h.rec.Mu.Lock()
		if h.rec.Generation() != h.generation {
			h.rec.Mu.Unlock()
			continue
		}
		if h.guarded && h.rec.State() != core.Live {
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
			o.use.Span = u.Span
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
			h.rec.Retract(o.use.LaunchID)
		}
		h.rec.Mu.Unlock()
	}
}

// unpin ends the hold on the blocks, does the frees that waited for it, and
// recycles o.
func (r *Resource) unpin(ctx context.Context, o *openLaunch) {
	for _, h := range o.known {
		if !h.guarded {
			continue
		}
		h.rec.Mu.Lock()
		h.rec.Guard.Open--
		last := h.rec.Guard.Open == 0 && h.rec.Guard.Deferred
		if last {
			h.rec.Guard.Deferred = false
		}
		h.rec.Mu.Unlock()
		if last {
			r.freeDeferred(ctx, h.rec)
		}
	}
	o.recycle()
}

// logLaunch keeps the launch as a possible suspect.
func (r *Resource) logLaunch(o *openLaunch) {
	if r.Mode() >= Sample {
		r.launches.add(launchRecord{use: o.use, began: o.began, readsOnly: o.readsOnly})
	}
}
