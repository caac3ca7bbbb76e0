package debugguard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// A block of the ledger was allocated under its eyes, and every declared use
// since was noted, in mode Off too. So a block that no launch is known to have
// written has been written by none that was declared. What was allocated
// unobserved has no record and is never accused.

// readsUnwritten reports the blocks that a prepared launch reads and that nothing has written.
func (r *Resource) readsUnwritten(o *openLaunch) {
	if r.Mode() == Off {
		return
	}
	for i := range o.known {
		h := &o.known[i]
		if !h.unwritten || !h.rec.Lock(h.generation) {
			continue
		}
		suspect, id := o.use(), h.rec.ID()
		suspect.Access = core.Read
		_ = r.reportUnwritten(h.rec, id, suspect) // prepared: the error is the finding's
	}
}

// reportUnwritten reports the read once for the block, unlocks rec, and returns
// the read as an error.
func (r *Resource) reportUnwritten(rec *ledger.Record, id core.BlockID, suspect core.UseRecord) error {
	rec.NoteReadUnwritten()
	f := r.victim(names.FindingUninitializedRead, rec)
	rec.Unlock()
	suspect.Caller = r.untold(suspect.Caller)
	suspect.Time = monotime.Now().Time()
	f.Suspects = []core.UseRecord{suspect}
	err := &core.StreamMisuseError{Op: "PrepareUse", Block: id, Stream: suspect.Stream,
		Reason: "the launch reads the block before anything wrote it: declare the launch or copy that fills it, or declare Write here"}
	return r.accuse(f, err, "launch %q on stream %v reads generation %s tagged %q, which no declared launch has written",
		suspect.Launch, suspect.Stream, id.Generation, f.Victim.Tag)
}

// refuse finds in a launch that is not prepared yet what is to be refused.
func (r *Resource) refuse(ctx context.Context, req *core.UseRequest) error {
	if err := r.sealedUses(ctx, req); err != nil || r.Mode() == Off || !r.cfg.Advanced.Refuse {
		return err
	}
	var known [8]knownUse
	var extents [8]extent
	o := openLaunch{known: known[:0], extents: extents[:0]}
	for i := range req.Uses {
		u := &req.Uses[i]
		rec := r.glance(u.Block)
		if rec == nil || !rec.Lock(u.Block.Generation) {
			continue
		}
		if rec.State() == core.Live && rec.Unwritten() && u.Access == core.Read && !writes(req.Uses, u.Block.Generation) {
			return r.reportUnwritten(rec, u.Block, core.UseRecord{Launch: names.Bound(req.Launch), Stream: req.Stream, Access: u.Access})
		}
		o.known = append(o.known, knownUse{rec: rec, generation: u.Block.Generation})
		rec.Unlock()
	}
	if len(req.Pointers) == 0 {
		return nil
	}
	o.measure()
	return r.checkPointers(&o, req)
}

// writes reports whether one of the uses writes the block.
func writes(uses []core.Use, g core.Generation) bool {
	return slices.ContainsFunc(uses, func(u core.Use) bool { return u.Block.Generation == g && u.Access.Writes() })
}

// checkPointers finds the pointers of a launch that lie in no block that it
// declares but in another one of the ledger, and returns the first of them as
// an error. One that lies right behind a declared block is its end, which
// many programs pass.
func (r *Resource) checkPointers(o *openLaunch, req *core.UseRequest) (first error) {
	at := 0
	for _, ptr := range req.Pointers {
		if !o.declares(ptr, &at) && ptr != 0 && r.Mode() != Off {
			first = cmp.Or(first, r.undeclared(o, req, ptr, false))
		}
	}
	return first
}

// suspectWords finds the numbers among the arguments of a launch that would be found if they
// were said to be pointers. They need be none, so nothing is refused for them.
func (r *Resource) suspectWords(o *openLaunch, req *core.UseRequest) {
	at := 0
	for _, word := range req.Words {
		if r.ledger.MayHold(word) && !o.declares(word, &at) && r.Mode() != Off {
			_ = r.undeclared(o, req, word, true)
		}
	}
}

// declares reports whether an address lies in a block that the launch declares, or is its end. The
// search begins at the one that the last was in: pointers mostly come in the order of the uses.
func (o *openLaunch) declares(ptr uint64, at *int) bool {
	for range o.extents {
		if e := &o.extents[*at]; ptr-e.ptr <= e.bytes {
			return true
		}
		*at = (*at + 1) % len(o.extents)
	}
	return false
}

// measure notes where the known blocks of the launch lie.
func (o *openLaunch) measure() {
	o.extents = o.extents[:0]
	for _, h := range o.known {
		if h.rec.Lock(h.generation) {
			o.extents = append(o.extents, extent{h.rec.Ptr, h.rec.Bytes})
			h.rec.Unlock()
		}
	}
}

// undeclared reports a pointer that lies in a live block which the launch does
// not declare, or in a freed one and in no live one. A number that may be none is reported as
// not proven.
func (r *Resource) undeclared(o *openLaunch, req *core.UseRequest, ptr uint64, suspected bool) error {
	live, freed := r.ledger.Owners(ptr)
	use := o.use()
	use.Launch, use.Stream = names.Bound(req.Launch), req.Stream
	use.Time = monotime.Now().Time()
	for i := range req.Uses {
		if g := req.Uses[i].Block.Generation; live != nil && g == live.ID.Generation {
			return nil // declared, and not held because it was freed meanwhile
		}
	}
	for _, b := range [...]*core.Block{live, freed} {
		if b != nil {
			r.noteGiven(o, b.ID)
		}
	}
	p := strayPointer{kind: names.FindingUndeclaredAccess, ptr: ptr, why: "it does not declare", suspected: suspected}
	switch {
	case live != nil:
		return r.accusePointer(p, live.ID, use)
	case freed != nil && uint64(freed.ID.Generation) > r.ledger.Unseen.Load() && !r.livesBelow(ptr, freed.ID.Generation):
		p.why = "was freed"
		if !suspected {
			p.kind = names.FindingStaleHandle
		}
		return r.accusePointer(p, freed.ID, use)
	}
	return nil
}

// noteGiven adds a prepared launch to the uses of a block that it was given a pointer into
// and does not declare.
func (r *Resource) noteGiven(o *openLaunch, id core.BlockID) {
	if o.id == 0 {
		return
	}
	if rec := r.ledger.Lock(id); rec != nil {
		rec.Note(o.note)
		rec.Unlock()
		o.given = append(o.given, knownUse{rec: rec, generation: id.Generation})
	}
}

// strayPointer is a pointer into a block that a launch does not declare, or a number that may be
// one, and what is wrong with it.
type strayPointer struct {
	kind      core.FindingKind
	ptr       uint64
	why       string
	suspected bool
}

// accusePointer reports a pointer into a block that the launch does not
// declare, once for the block and the launch's name unless it is refused, and
// returns it as an error.
func (r *Resource) accusePointer(p strayPointer, id core.BlockID, use core.UseRecord) error {
	if (p.suspected || !r.cfg.Advanced.Refuse) && !r.accused.first(id.Generation, use.Launch) {
		return nil
	}
	rec := r.ledger.LockAny(id)
	if rec == nil {
		return nil
	}
	f := r.victim(p.kind, rec)
	rec.Unlock()
	b, what := f.Victim, "pointer"
	if f.Unproven = p.suspected; p.suspected {
		what = "the number"
	} else {
		use.Caller = r.untold(use.Caller)
	}
	f.Suspects = []core.UseRecord{use}
	var err error = &core.StreamMisuseError{Op: "PrepareUse", Block: id, Stream: use.Stream,
		Reason: fmt.Sprintf("the launch is given pointer %#x into a block that is not among its uses: declare what it does with it", p.ptr)}
	if p.kind == names.FindingStaleHandle {
		err = &core.UseAfterFreeError{Op: "PrepareUse", Generation: id.Generation, Block: id, State: b.State, Tag: b.Tag}
	}
	return r.accuse(f, err, "launch %q on stream %v is given %s %#x, at offset %d of generation %s tagged %q, which %s",
		use.Launch, use.Stream, what, p.ptr, p.ptr-b.ID.Ptr, id.Generation, b.Tag, p.why)
}

// accusations are what was reported of launches that may come again and again.
type accusations struct {
	mu   sync.Mutex
	seen map[accusation]struct{}
}

type accusation struct {
	generation core.Generation
	launch     string
}

// maxAccusations bounds the memory of them; all are forgotten beyond it.
const maxAccusations = 4096

// first reports whether the launch was not accused of the block yet.
func (a *accusations) first(g core.Generation, launch string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := accusation{g, launch}
	if _, seen := a.seen[key]; seen {
		return false
	}
	if a.seen == nil || len(a.seen) == maxAccusations {
		a.seen = map[accusation]struct{}{}
	}
	a.seen[key] = struct{}{}
	return true
}

// livesBelow reports whether the upstream knows a live block at the address,
// which the ledger then does not know. The freed one that the address was
// found in may be in quarantine, which for the upstream is alive.
func (r *Resource) livesBelow(ptr uint64, freed core.Generation) (lives bool) {
	r.below.Blocks(func(info core.BlockInfo) bool {
		lives = info.Block.State == core.Live && ptr-info.Block.ID.Ptr < info.Block.Bytes && info.Block.ID.Generation != freed
		return !lives
	})
	return lives
}
