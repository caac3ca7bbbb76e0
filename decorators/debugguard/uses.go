package debugguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/launchkind"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// PrepareUse opens the intent at the upstream. A use of a block that was
// freed is refused with a [core.UseAfterFreeError] and found as a stale
// handle, or as a reuse race if its memory is another block's by now; a
// pointer outside a guarded block is a [core.StreamMisuseError]. A read of a
// block that nothing has written, and a pointer into a block that the launch
// does not declare, are found, and refused with a [core.StreamMisuseError] if
// [Advanced.Refuse] says so. An upstream that tracks no uses refuses them
// itself.
func (r *Resource) PrepareUse(ctx context.Context, req core.UseRequest) (t core.Ticket, err error) {
	if r.gate.Load() == 0 || !r.tracked {
		return r.uses.PrepareUse(ctx, req)
	}
	req.Launch = names.Bound(req.Launch)
	o, returned := openLaunches.Get().(*openLaunch), false
	defer func() {
		if !returned { // code of the user's panics, and nobody gets the ticket
			if t.IsOpen() {
				r.retract(o)
				_ = r.uses.AbortUse(ctx, t)
			}
			r.dropBlocks(ctx, o)
		}
	}()
	err = r.prepareKnown(ctx, &req, o, &t)
	returned = true
	return t, err
}

// prepareKnown is PrepareUse of a launch o, into t.
func (r *Resource) prepareKnown(ctx context.Context, req *core.UseRequest, o *openLaunch, t *core.Ticket) error {
	o.began, o.caller, o.readsOnly = r.launches.now(), req.Span, req.OwnWork == launchkind.ReadsOnly
	err := r.retainBlocks(o, req)
	if err == nil {
		err = r.sealedUses(ctx, req)
	}
	if err == nil && r.cfg.Advanced.Refuse {
		err = r.refuse(o, req)
	}
	if err != nil {
		r.dropBlocks(ctx, o)
		return err
	}
	if *t, err = r.prepare(ctx, req); err != nil {
		r.dropBlocks(ctx, o)
		return r.refused(err, late{op: "PrepareUse", stream: req.Stream, launch: req.Launch, uses: req.Uses})
	}
	r.delay(ctx, req.Stream)
	r.begin(o, t.Intent())
	if err := r.noteUses(o, t.Intent(), req.Uses); err != nil { // freed while this call waited
		return r.withdraw(ctx, t, o, err)
	}
	if len(req.Pointers) > 0 && !r.cfg.Advanced.Refuse {
		_ = r.checkPointers(o, req) // prepared: the errors are the findings'
	}
	r.suspectWords(o, req)
	entered := r.enter(*t, o)
	if err := r.sealedUses(ctx, req); err != nil { // sealed since it was asked
		if entered {
			r.launches.end(o, nil)
		}
		return r.withdraw(ctx, t, o, err)
	}
	if !entered {
		o.recycle()
	}
	return nil
}

// withdraw takes a launch back of which nothing was enqueued, and returns why.
func (r *Resource) withdraw(ctx context.Context, t *core.Ticket, o *openLaunch, why error) error {
	r.retract(o)
	_ = r.uses.AbortUse(ctx, *t)
	*t = core.Ticket{}
	r.dropBlocks(ctx, o)
	return why
}

// FinishUse closes the intent. A free that waited for it is done now, for
// which the caller pays but of whose failure it is not told: the block is
// kept and the free tried again.
func (r *Resource) FinishUse(ctx context.Context, t core.Ticket) error {
	o, err := r.beginEnd("FinishUse", t)
	if err != nil {
		return err
	}
	if o == nil {
		if r.gate.Load() != 0 && t.IsOpen() {
			r.noteSpans(nil, t.Intent())
		}
		return r.uses.FinishUse(ctx, t)
	}
	in := t.Intent() // this call's alone until the ticket is spent
	r.noteSpans(o, in)
	if r.Mode() < Sample {
		in = nil
	}
	r.launches.end(o, in)
	defer r.dropBlocks(ctx, o)     // also where code of the user's panics in a layer below, or is told of a finding
	err = r.uses.FinishUse(ctx, t) // spends the ticket, also if it fails
	r.forget(o)
	r.bisect(ctx, o)
	return err
}

// AbortUse closes the intent of a launch that was not enqueued, and forgets
// that it used its blocks.
func (r *Resource) AbortUse(ctx context.Context, t core.Ticket) error {
	o, err := r.beginEnd("AbortUse", t)
	if err != nil {
		return err
	}
	if o == nil {
		return r.abortUnentered(ctx, t)
	}
	defer func() {
		r.forget(o)
		r.launches.end(o, nil)
		r.retract(o)
		r.dropBlocks(ctx, o)
	}()
	return r.uses.AbortUse(ctx, t) // spends the ticket, also if it fails
}

// abortUnentered is AbortUse of a launch that only its intent knows.
func (r *Resource) abortUnentered(ctx context.Context, t core.Ticket) error {
	if r.gate.Load() == 0 || !t.IsOpen() {
		return r.uses.AbortUse(ctx, t)
	}
	o := openLaunches.Get().(*openLaunch)
	defer o.recycle()
	in := t.Intent()
	o.id = in.ID
	for i := range in.Uses {
		if rec, _ := r.glance(in.Uses[i].Block); rec != nil {
			o.known = append(o.known, knownUse{rec: rec, generation: in.Uses[i].Block.Generation})
		}
	}
	err := r.uses.AbortUse(ctx, t)
	if err == nil {
		r.retract(o)
	}
	return err
}

// RecordUse notes the use and passes it on. Work whose waits were not queued,
// while a conflicting use is not known to be ordered before it, is found as a
// missing fence, or as a use before the allocation is ready if that is all it
// overtakes. With [Advanced.Refuse] that is a [core.StreamMisuseError] too: the
// use is recorded all the same, because its work was enqueued already and the
// free must wait for it. A use before the allocation is ready is found as not
// proven, and never refused, if one of the two streams is adopted: who has the
// stream may have ordered the two with events of the driver's. Other errors are
// those of PrepareUse.
func (r *Resource) RecordUse(ctx context.Context, id core.BlockID, stream core.StreamID) error {
	if r.gate.Load() == 0 || !r.tracked {
		return r.uses.RecordUse(ctx, id, stream)
	}
	rec, err := r.usable(late{op: "RecordUse", id: id, stream: stream})
	if err != nil {
		return err
	}
	if rec != nil {
		rec.Unlock()
	}
	began := r.launches.now()
	var in core.SpanContext
	if r.Mode() >= Sample { // it may become a suspect
		in = r.spanIn(ctx)
	}
	racing := r.overtaken(id, stream)
	err = r.uses.RecordUse(ctx, id, stream)
	if len(racing) > 0 {
		if found := r.missingFence(ctx, id, stream, racing); r.cfg.Advanced.Refuse && found != nil {
			err = errors.Join(err, found)
		}
	}
	if err != nil && len(racing) == 0 {
		return r.refused(err, late{op: "RecordUse", stream: stream})
	}
	use, at := core.UseRecord{Stream: stream, Access: core.ReadWrite, Caller: in}, monotime.Now()
	if rec := r.ledger.Lock(id); rec != nil {
		rec.Note(r.ledger.Pack(use.LaunchID, use.Launch, use.Stream, use.Access, at))
		rec.Unlock()
	}
	if r.Mode() >= Sample {
		r.launches.addRecorded(&launchRecord{use: use, at: at, began: began})
	}
	return err
}

// overtaken lists the uses that work enqueued on the stream without waits may
// overtake. The guard's own are none of the program's business: they look at
// what the program must not write.
func (r *Resource) overtaken(id core.BlockID, stream core.StreamID) []core.UseRecord {
	if r.Mode() == Off {
		return nil
	}
	racing, _ := r.below.Unordered(id, stream, core.ReadWrite)
	racing = slices.DeleteFunc(racing, isOwnLook)
	for i, u := range racing {
		if u.Launch == launchArm { // it stands for the allocation, behind which it is
			racing[i] = core.UseRecord{Stream: u.Stream, Access: core.Write}
		}
	}
	slices.SortStableFunc(racing, func(a, b core.UseRecord) int { return cmp.Compare(b.LaunchID, a.LaunchID) }) // the newest launch first
	return racing
}

// isOwnLook reports whether a use is a comparison of the guard's own. It reads
// what the program may not write, so nobody has to wait for it, and the program
// does not know of it.
func isOwnLook(u core.UseRecord) bool {
	return u.Access == core.Read && strings.HasPrefix(u.Launch, launchPrefix)
}

// missingFence reports that work on the stream was not ordered behind the
// uses that it may overtake, and returns it as an error, nil if it is not proven.
func (r *Resource) missingFence(ctx context.Context, id core.BlockID, stream core.StreamID, racing []core.UseRecord) error {
	now := monotime.Now()
	f := core.Finding{Kind: names.FindingUseBeforeAlloc, Victim: core.Block{ID: id, State: core.Live}}
	for i := range racing {
		if !isReadiness(racing[i]) {
			f.Kind = names.FindingMissingFence
		}
	}
	if rec := r.ledger.Lock(id); rec != nil {
		f = r.victim(f.Kind, rec)
		rec.Unlock()
	}
	f.Suspects = append([]core.UseRecord{{Stream: stream, Access: core.ReadWrite, Time: now.Time()}}, racing...)
	if f.Kind == names.FindingUseBeforeAlloc && r.below.Adopted(id, stream) {
		f.Unproven, f.Suspects[0].Caller = true, r.spanIn(ctx)
		f.Text = fmt.Sprintf("work on stream %v used generation %s tagged %q, and Fencepost has not ordered it behind %s, at %s; if you ordered it yourself, an event of your own between the adopted streams, this is no bug: "+
			"prepare the use before the work is enqueued (Launch, a LaunchRecorder), and Fencepost orders it and says no more",
			stream, id.Generation, f.Victim.Tag, overtakenText(racing), caller())
		r.report(f)
		return nil
	}
	f.Suspects[0].Caller = r.untold(r.spanIn(ctx))
	err := &core.StreamMisuseError{Op: "RecordUse", Block: id, Stream: stream,
		Reason: "the work was enqueued without waiting for " + overtakenText(racing) + ": prepare the use before the work is enqueued"}
	return r.accuse(f, err, "work on stream %v used generation %s tagged %q without waiting for %s",
		stream, id.Generation, f.Victim.Tag, overtakenText(racing))
}

// isReadiness reports whether a use is the allocation itself.
func isReadiness(u core.UseRecord) bool { return u.LaunchID == 0 && u.Access == core.Write }

// overtakenText names the first of the uses.
func overtakenText(racing []core.UseRecord) string {
	text := racing[0].String()
	switch {
	case isReadiness(racing[0]):
		text = fmt.Sprintf("its allocation on stream %v", racing[0].Stream)
	case racing[0].LaunchID == 0:
		text = fmt.Sprintf("work that was recorded on stream %v without a launch", racing[0].Stream)
	}
	if more := len(racing) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
