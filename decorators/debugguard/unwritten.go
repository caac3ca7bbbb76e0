package debugguard

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
)

// A block of the ledger was allocated under its eyes, and every declared use
// since was noted, in mode Off too. So a block that no launch is known to have
// written has been written by none that was declared. What was allocated
// unobserved has no record and is never accused.

// readsUnwritten reports whether an access reads what nobody wrote, which was
// not reported yet; mu must be held.
func (rec *record) readsUnwritten(a core.Access) bool {
	return a == core.Read && rec.writer == 0 && rec.flags&readUnwritten == 0
}

// readUnwritten reports that an open launch reads a block before any write. It
// unlocks rec.
func (r *Resource) readUnwritten(o *openLaunch, u *core.PreparedUse, rec *record) {
	if r.Mode() == Off {
		rec.mu.Unlock()
		return
	}
	suspect := o.use
	suspect.Access = u.Access
	_ = r.reportUnwritten(rec, u.Block, suspect) // prepared: the error is the finding's
}

// reportUnwritten reports the read once for the block, unlocks rec, and returns
// the read as an error.
func (r *Resource) reportUnwritten(rec *record, id core.BlockID, suspect core.UseRecord) error {
	rec.flags |= readUnwritten
	f := r.victim(core.FindingUninitializedRead, rec)
	rec.mu.Unlock()
	suspect.Time = r.ledger.clock.time(r.ledger.clock.instant())
	f.Suspects = []core.UseRecord{suspect}
	f.Text = fmt.Sprintf("launch %q on stream %v reads generation %s tagged %q, which no declared launch has written, at %s",
		suspect.Launch, suspect.Stream, id.Generation, f.Victim.Tag, caller())
	f.Err = &core.StreamMisuseError{Op: "PrepareUse", Block: id, Stream: suspect.Stream,
		Reason: "the launch reads the block before anything wrote it: declare the launch or copy that fills it, or declare Write here"}
	r.report(f)
	return f.Err
}

// refuse finds in a launch that is not prepared yet what would be found after,
// and refuses it.
func (r *Resource) refuse(o *openLaunch, req *core.UseRequest) error {
	if r.Mode() == Off {
		return nil
	}
	for i := range req.Uses {
		u := &req.Uses[i]
		if u.Access != core.Read || writes(req.Uses, u.Block.Generation) {
			continue
		}
		rec, _ := r.glance(u.Block)
		if rec == nil {
			continue
		}
		rec.mu.Lock()
		if rec.generation() == u.Block.Generation && u.Access == core.Read && rec.writer == 0 {
			return r.reportUnwritten(rec, u.Block, core.UseRecord{Launch: req.Launch, Stream: req.Stream, Access: u.Access})
		}
		rec.mu.Unlock()
	}
	if len(req.Pointers) == 0 {
		return nil
	}
	o.measure()
	return r.checkPointers(o, req)
}

// writes reports whether one of the uses writes the block.
func writes(uses []core.Use, g core.Generation) bool {
	for i := range uses {
		if uses[i].Block.Generation == g && uses[i].Access.Writes() {
			return true
		}
	}
	return false
}

// measure notes where the blocks of the launch lie.
func (o *openLaunch) measure() {
	for i := range o.known {
		h := &o.known[i]
		h.rec.mu.Lock()
		if h.rec.generation() == h.generation {
			h.ptr, h.bytes = h.rec.ptr, h.rec.bytes
		}
		h.rec.mu.Unlock()
	}
}
