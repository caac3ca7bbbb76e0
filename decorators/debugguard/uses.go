package debugguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/internal/launchkind"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// PrepareUse opens the intent at the upstream. A use of a block that was
// freed is refused with a [core.UseAfterFreeError] and found as a stale
// handle, or as a reuse race if its memory is another block's by now; a
// pointer outside a guarded block is a [core.StreamMisuseError]. A read of a
// block that nothing has written, and a pointer into a block that the launch
// does not declare, are found, and refused with a [core.StreamMisuseError] if
// [Advanced.Refuse] says so. An upstream that tracks no uses refuses them
// itself.
func (r *Resource) PrepareUse(ctx context.Context, req core.UseRequest) (core.Ticket, error) {
	if r.gate.Load() == 0 || !r.tracked {
		return r.uses.PrepareUse(ctx, req)
	}
	if r.seals.count.Load() > 0 || r.cfg.Advanced.Refuse {
		if err := r.refuse(ctx, &req); err != nil {
			return core.Ticket{}, err
		}
	}
	above, watched := req.OwnWork.(path.Watch)
	readsOnly := req.OwnWork == launchkind.ReadsOnly || watched && above.ReadsOnly()
	own := r.records.OfBackend() && !watched
	if own {
		req.OwnWork = r.watch(readsOnly)
	} else if err := r.unusable(&req); err != nil {
		return core.Ticket{}, err
	}
	t, err := r.uses.PrepareUse(ctx, req)
	if err != nil {
		if t, err = r.prepareAgain(ctx, &req, own, err); err != nil {
			return t, err
		}
	}
	in := t.Intent()
	o := r.launchOf(in)
	if o == nil {
		if !r.announceAll(in, !own || len(in.Uses) > 0) { // freed since the upstream looked
			_ = r.AbortUse(ctx, t)
			return core.Ticket{}, cmp.Or(r.unusable(&req), path.ErrDeclined)
		}
		o = r.launchOf(in)
	}
	o.caller, o.readsOnly = req.Span, readsOnly
	if o.unwritten || len(req.Pointers) > 0 || len(req.Words) > 0 || r.seals.count.Load() > 0 || r.hunting().Delay {
		return r.examine(ctx, &req, t, o)
	}
	return t, nil
}

// watching is how the guard hears of the blocks of a launch.
type watching struct {
	r         *Resource
	readsOnly bool
}

func (r *Resource) watch(readsOnly bool) path.Watch {
	if readsOnly {
		return &r.watches[1]
	}
	return &r.watches[0]
}

// ReadsOnly reports whether the launch only reads device memory.
func (w *watching) ReadsOnly() bool { return w.readsOnly }

// examine looks for what is wrong with a launch that is prepared, and takes it back if that is to be refused.
func (r *Resource) examine(ctx context.Context, req *core.UseRequest, t core.Ticket, o *openLaunch) (_ core.Ticket, err error) {
	good := false
	defer func() {
		if !good { // or code of the user's panics, and nobody gets the ticket
			_ = r.AbortUse(ctx, t)
		}
	}()
	r.delay(ctx, req.Stream)
	if o.unwritten {
		r.readsUnwritten(o)
	}
	o.measure()
	if len(req.Pointers) > 0 && !r.cfg.Advanced.Refuse {
		_ = r.checkPointers(o, req) // prepared: the errors are the findings'
	}
	r.suspectWords(o, req)
	if err := r.sealedUses(ctx, req); err != nil { // sealed since it was asked
		return core.Ticket{}, err
	}
	good = true
	return t, nil
}

// FinishUse closes the intent. A free that waited for it is done now, for
// which the caller pays but of whose failure it is not told: the block is
// kept and the free tried again. A backend that knows of [path.Watch] tells the guard itself.
func (r *Resource) FinishUse(ctx context.Context, t core.Ticket) error {
	own, o := r.claim(t)
	if o == nil {
		return r.uses.FinishUse(ctx, t)
	}
	f := r.finish(o)
	if f != nil {
		defer f.Ended(ctx) // also where code of the user's panics in a layer below, or is told of a finding
	}
	return disclaim(t, own, r.uses.FinishUse(ctx, own)) // spends the ticket, also if it fails
}

// Finish is FinishUse of a launch of which the backend tells.
func (w *watching) Finish(in *core.Intent) path.Finishing {
	if o := w.r.launchOf(in); o != nil {
		if f := w.r.finish(o); f != nil {
			return f
		}
	}
	return nil
}

// finish logs a launch that is enqueued, and returns what is to be done when it has ended, nil if that is nothing.
func (r *Resource) finish(o *openLaunch) *finishing {
	span := r.noteSpans(o.in)
	if r.Mode() >= Sample {
		r.launches.add(o, span)
	}
	if !o.guarded && !r.hunting().Bisect {
		return nil
	}
	f := finishings.Get().(*finishing)
	f.r, f.stream, f.known = r, o.in.Stream, append(f.known[:0], o.known...)
	return f
}

// finishing is what is left of a launch when its intent may be used again.
type finishing struct {
	r      *Resource
	stream core.StreamID
	known  []knownUse
}

var finishings = sync.Pool{New: func() any { return new(finishing) }}

// Ended compares the launch's blocks if that is asked for, and ends their use.
func (f *finishing) Ended(ctx context.Context) {
	defer func() {
		defer finishings.Put(f)
		f.r.drop(ctx, f.known)
	}()
	f.r.bisect(ctx, f.stream, f.known)
}

// AbortUse closes the intent of a launch that was not enqueued, and forgets
// that it used its blocks.
func (r *Resource) AbortUse(ctx context.Context, t core.Ticket) error {
	own, o := r.claim(t)
	if o == nil {
		return r.uses.AbortUse(ctx, t)
	}
	r.retract(o)
	var few [8]knownUse
	defer r.drop(ctx, append(few[:0], o.known...))
	return disclaim(t, own, r.uses.AbortUse(ctx, own)) // spends the ticket, also if it fails
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
