package debugguard

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// openLaunch is what the guard knows of a launch between its prepare and its end, beside what the intent
// has. It stays with the intent, and is used again with that.
type openLaunch struct {
	// of is the guard whose it is, in the intent, and below what another guard keeps of that.
	of    *Resource
	in    *core.Intent
	below any
	// id is the number of the launch that it is of. claims: no backend tells of its end, so the guard claims its ticket.
	id     uint64
	claims bool
	// note is a use by the launch, with the number of its name.
	note ledger.Use
	name string
	// caller is the span in which it was prepared.
	caller core.SpanContext
	// at and began are when and at which tick it was prepared.
	at    monotime.Instant
	began uint64
	// readsOnly is set if the runtime knows that it writes no device memory.
	readsOnly bool
	// known are the blocks used that the ledger has, sorted by generation; guarded is set if one of them
	// is, and unwritten if one of them is read before it was written.
	known              []knownUse
	guarded, unwritten bool
	// extents are where the known blocks lie, if that was asked.
	extents []extent
	// given are those that it was given a pointer into and does not declare.
	given []knownUse
}

// knownUse is one known block of an open launch. One that is guarded is counted in its
// record's open intents.
type knownUse struct {
	rec        *ledger.Record
	generation core.Generation
	unwritten  bool // before the launch, which reads it
}

// extent is where a block lies.
type extent struct{ ptr, bytes uint64 }

func (h *knownUse) guarded() bool { return h.rec.Guard != nil }

// use describes the launch as a whole.
func (o *openLaunch) use() core.UseRecord {
	u := core.UseRecord{LaunchID: o.id, Caller: o.caller}
	if o.in != nil { // it was prepared
		u.Launch, u.Stream = o.in.Launch, o.in.Stream
	}
	return u
}

// launchOf is what the guard has of the launch of an intent, nil if it has seen none of it.
func (r *Resource) launchOf(in *core.Intent) *openLaunch {
	o, _ := in.Guard.(*openLaunch)
	for o != nil && o.of != r {
		o, _ = o.below.(*openLaunch)
	}
	if o == nil || o.id != in.ID {
		return nil
	}
	return o
}

// open is launchOf, which begins a launch that the guard has not seen.
func (r *Resource) open(in *core.Intent) *openLaunch {
	if o, _ := in.Guard.(*openLaunch); o != nil && o.of == r && o.id == in.ID {
		return o
	}
	return r.begin(in)
}

func (r *Resource) begin(in *core.Intent) *openLaunch {
	o, _ := in.Guard.(*openLaunch)
	for o != nil && o.of != r {
		o, _ = o.below.(*openLaunch)
	}
	if o == nil {
		o = &openLaunch{of: r, in: in, below: in.Guard}
		in.Guard = o
		r.launches.enter(o)
	}
	if o.id != in.ID {
		o.id, o.at, o.began = in.ID, in.Began, r.launches.now()
		if o.at == 0 {
			o.at = monotime.Now()
		}
		if o.name != in.Launch { // most launches of a stream follow one of the same name
			o.name, o.note = in.Launch, r.ledger.Pack(0, in.Launch, 0, 0, 0)
		}
		o.note = o.note.By(in.ID, in.Stream, o.at)
		o.known, o.given, o.guarded, o.unwritten, o.claims = o.known[:0], o.given[:0], false, false, false
	}
	return o
}

// Announce adds the launch to the uses of a block, if the ledger has that. A guarded one counts as
// in use from here on, so that a free waits. It says no to a block that must not be used.
func (w *watching) Announce(in *core.Intent, u *core.PreparedUse, of *path.Record) bool {
	r := w.r
	o, g := r.open(in), u.Block.Generation
	rec := r.ledger.At(of)
	if rec == nil || !rec.Lock(g) {
		return true // the upstream has judged
	}
	defer rec.Unlock()
	live := rec.State() == core.Live
	if may := r.mayUse(rec, live, u.Block.Ptr); !may || !live {
		return may
	}
	if rec.Guard != nil {
		rec.Guard.Open++
		o.guarded = true
	}
	unwritten := rec.ReadsUnwritten(u.Access)
	o.unwritten = o.unwritten || unwritten
	rec.Note(o.note.As(u.Access))
	o.known = append(o.known, knownUse{rec, g, unwritten})
	return true
}

// announceAll is Announce for all blocks of a launch on which the backend has not called that: it has no blocks, or the
// backend knows of no [path.Watch].
func (r *Resource) announceAll(in *core.Intent, claims bool) bool {
	in.WhileOpen(func() { // which a Seal may be asking for
		r.open(in).claims = claims
	})
	if claims {
		r.launches.claims.Store(true)
	}
	for i := range in.Uses {
		u := &in.Uses[i]
		if !r.watches[0].Announce(in, u, r.records.Find(u.Block)) {
			return false
		}
	}
	return true
}

// Withdraw forgets a launch that was refused when it was announced on some blocks, or aborted by a layer beneath in which
// code of the user's has panicked.
func (w *watching) Withdraw(ctx context.Context, in *core.Intent) {
	r := w.r
	if o := r.launchOf(in); o != nil && !o.claims {
		r.retract(o)
		r.drop(ctx, o.known)
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

// drop ends the use of guarded blocks, and does the frees that waited for that.
func (r *Resource) drop(ctx context.Context, uses []knownUse) {
	for _, h := range uses {
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
}

// claim returns the launch of t to the one who ends it, with a ticket for it: nil if the backend tells of its end, or the
// guard has not seen it, or another call ends it, which the upstream then refuses.
func (r *Resource) claim(t core.Ticket) (core.Ticket, *openLaunch) {
	if !r.launches.claims.Load() {
		return t, nil
	}
	own, ok := t.Claim()
	if !ok {
		return t, nil
	}
	o := r.launchOf(own.Intent())
	if o == nil || !o.claims {
		t.Disclaim(own)
		return t, nil
	}
	return own, o
}

// disclaim makes the caller's ticket good again if the upstream has not taken the guard's, which it must.
func disclaim(t, own core.Ticket, err error) error {
	if err != nil {
		t.Disclaim(own)
	}
	return err
}

// glance finds the record of a block without a lock, nil if the ledger does
// not know it.
func (r *Resource) glance(id core.BlockID) *ledger.Record {
	if id.Ordinal != r.ordinal {
		return nil
	}
	return r.ledger.Get(id)
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

// Suspects reports, without the lock of a record, whether a block must not be used.
func (w *watching) Suspects(id core.BlockID, of *path.Record) bool {
	r := w.r
	rec := r.ledger.At(of)
	if rec == nil {
		return false
	}
	known, live := rec.Peek(id.Generation)
	return known && !r.mayUse(rec, live, id.Ptr)
}

// mayUse reports whether a block that is live or not may be used by a pointer; of one that is neither guarded nor live the
// upstream judges while the guard is off.
func (r *Resource) mayUse(rec *ledger.Record, live bool, ptr uint64) bool {
	if !live {
		return rec.Guard == nil && r.Mode() == Off
	}
	return rec.Guard == nil || rec.Guard.Layout.Contains(ptr)
}

// unusable is why announce said no to a launch; nil if that has passed.
func (r *Resource) unusable(req *core.UseRequest) error {
	for i := range req.Uses {
		use := lateIn(req)
		use.id = req.Uses[i].Block
		rec, err := r.usable(use)
		if err != nil {
			return err
		}
		if rec != nil {
			rec.Unlock()
		}
	}
	return nil
}

// noteSpans completes the uses with the spans that a tracing layer set since, and returns the last.
func (r *Resource) noteSpans(in *core.Intent) (last core.SpanRef) {
	for i := range in.Uses {
		u := &in.Uses[i]
		if u.Span.SpanID == ([8]byte{}) { // no span has that; to compare all of it takes ten times as long
			continue
		}
		last = u.Span
		if rec := r.ledger.Lock(u.Block); rec != nil {
			rec.Traced(in.ID, u.Span)
			rec.Unlock()
		}
	}
	return last
}
