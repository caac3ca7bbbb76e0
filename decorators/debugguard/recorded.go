package debugguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
)

// RecordUse notes the use and passes it on. Work whose waits were not queued,
// while a conflicting use is not known to be ordered before it, is found as a
// missing fence, or as a use before the allocation is ready if that is all it
// overtakes. With [Config.Refuse] that is a [core.StreamMisuseError] too: the
// use is recorded all the same, because its work was enqueued already and the
// free must wait for it. A use before the allocation is ready is found as not
// proven, and never refused, if one of the two streams is adopted: who has the
// stream may have ordered the two with events of the driver's. Other errors are
// those of PrepareUse.
func (r *Resource) RecordUse(ctx context.Context, id core.BlockID, stream core.StreamID) error {
	if r.gate.Load() == 0 || !r.tracked {
		return r.upstream.RecordUse(ctx, id, stream)
	}
	rec, err := r.usable("RecordUse", id, stream, "")
	if err != nil {
		return err
	}
	if rec != nil {
		rec.mu.Unlock()
	}
	began := r.launches.now()
	racing := r.overtaken(id, stream)
	err = r.upstream.RecordUse(ctx, id, stream)
	if len(racing) > 0 {
		if found := r.missingFence(id, stream, racing); r.cfg.Refuse && found != nil {
			err = errors.Join(err, found)
		}
	}
	if err != nil && len(racing) == 0 {
		return r.refused(err, late{op: "RecordUse", stream: stream})
	}
	use := core.UseRecord{Stream: stream, Access: core.ReadWrite, Time: r.ledger.clock.time(r.ledger.clock.instant())}
	if rec := r.ledger.lock(id); rec != nil {
		rec.note(packUse(use, 0, r.ledger.clock.instant()))
		rec.mu.Unlock()
	}
	r.logLaunch(&openLaunch{use: use, began: began})
	return err
}

// overtaken lists the uses that work enqueued on the stream without waits may
// overtake. The guard's own are none of the program's business: they look at
// what the program must not write.
func (r *Resource) overtaken(id core.BlockID, stream core.StreamID) []core.UseRecord {
	if r.orderer == nil || r.Mode() == Off {
		return nil
	}
	racing := slices.DeleteFunc(r.orderer.Unordered(id, stream, core.ReadWrite), isOwnLook)
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
func (r *Resource) missingFence(id core.BlockID, stream core.StreamID, racing []core.UseRecord) error {
	now := r.ledger.clock.time(r.ledger.clock.instant())
	f := core.Finding{Kind: core.FindingUseBeforeAlloc, Victim: core.Block{ID: id, State: core.Live}}
	for i := range racing {
		if !isReadiness(racing[i]) {
			f.Kind = core.FindingMissingFence
		}
	}
	if rec := r.ledger.lock(id); rec != nil {
		kind := f.Kind
		f = r.victim(kind, rec)
		rec.mu.Unlock()
	}
	f.Suspects = append([]core.UseRecord{{Stream: stream, Access: core.ReadWrite, Time: now}}, racing...)
	f.Text = fmt.Sprintf("work on stream %v used generation %s tagged %q without waiting for %s, at %s",
		stream, id.Generation, f.Victim.Tag, overtakenText(racing), caller())
	if f.Kind == core.FindingUseBeforeAlloc && r.books != nil && r.books.Adopted(id, stream) {
		f.Unproven = true
		f.Text = fmt.Sprintf("work on stream %v used generation %s tagged %q, and Fencepost has not ordered it behind %s, at %s; if you ordered it yourself, an event of your own between the adopted streams, this is no bug: "+
			"prepare the use before the work is enqueued (Launch, a LaunchRecorder), and Fencepost orders it and says no more",
			stream, id.Generation, f.Victim.Tag, overtakenText(racing), caller())
		r.report(f)
		return nil
	}
	f.Err = &core.StreamMisuseError{Op: "RecordUse", Block: id, Stream: stream,
		Reason: "the work was enqueued without waiting for " + overtakenText(racing) + ": prepare the use before the work is enqueued"}
	r.report(f)
	return f.Err
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
