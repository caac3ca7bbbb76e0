package debugguard

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/core/names"
)

// damage is what was found changed in one block in one way.
type damage struct {
	place watched
	kind  core.FindingKind
	// offset is that of the first bad byte, from the caller's pointer.
	offset         int64
	bytes          uint64
	expected, seen byte
}

// judge reads the result of a comparison that the device has done. What an
// earlier comparison has told is not told again.
func (r *Resource) judge(b *batch, v deviceops.Verification) error {
	mismatches, err := v.Mismatches()
	if err != nil {
		return err
	}
	var found []damage
	for _, m := range mismatches {
		w := b.watched[m.Region]
		d := damage{place: w, offset: w.offset + int64(m.Offset), bytes: m.BadBytes, expected: m.Expected, seen: m.Seen}
		d.kind = d.kindOf()
		if n := len(found); n > 0 && found[n-1].place.rec == w.rec && found[n-1].kind == d.kind {
			found[n-1].bytes += d.bytes // another place of the same poison
			continue
		}
		found = append(found, d)
	}
	for _, d := range found {
		if d.place.rec.Guard.IsNews(d.kind, d.place.filled) {
			r.reportDamage(d, b)
		}
	}
	if b.bisecting {
		// The device has done all that had been enqueued on the stream. While launches
		// are not bisected some are logged before they are enqueued.
		r.launches.completed(b.check.stream, b.check.at)
	}
	return nil
}

// kindOf says what it means that bytes of the place have changed.
func (d damage) kindOf() core.FindingKind {
	switch w := d.place; {
	case w.rec.Guard.CanaryOf != nil:
		return names.FindingStrayWrite
	case w.offset < 0:
		return names.FindingUnderflow
	case w.inBody():
		return names.FindingUseAfterFreeWrite
	}
	return names.FindingOutOfBoundsWrite
}

var damageText = map[core.FindingKind]string{
	names.FindingUnderflow:         "bytes before the block were overwritten",
	names.FindingOutOfBoundsWrite:  "bytes behind the block were overwritten",
	names.FindingUseAfterFreeWrite: "the block was written after it was freed",
	names.FindingStrayWrite:        "memory without an owner was written",
}

// reportDamage names the victim and the launches that may have done it; checks.reading must be
// held.
func (r *Resource) reportDamage(d damage, b *batch) {
	rec := d.place.rec
	rec.LockGuarded()
	f := r.victim(d.kind, rec)
	f.Origin = rec.Origin()
	rec.Unlock()
	f.Offset, f.BadBytes, f.Expected, f.Seen = d.offset, d.bytes, d.expected, d.seen
	r.suspect(&f, d.place, b)
	f.Text = fmt.Sprintf("%s: %d bytes of generation %s tagged %q changed, the first at offset %d from %#02x to %#02x; %s",
		damageText[d.kind], f.BadBytes, f.Victim.ID.Generation, f.Victim.Tag, f.Offset, f.Expected, f.Seen, doers(&f))
	if owner := rec.Guard.CanaryOf; owner != nil {
		f.Text += formerly(*owner, f.Victim.ID.Ptr+uint64(f.Offset))
	}
	f.Err = damageError(f)
	r.checks.find(f)
}

// doers says how many launches may have done it.
func doers(f *core.Finding) string {
	who, did := fmt.Sprintf("%d launches", len(f.Suspects)), " may have done it"
	switch {
	case f.MoreSuspects:
		who += " or more"
	case len(f.Suspects) == 1:
		who = "one launch"
	case len(f.Suspects) == 0:
		who = "no launch is known that"
	}
	if f.Unranked || len(f.Suspects) == 0 {
		who = "no declared launch touched it: undeclared work, or code that does not go through Fencepost; " + who
		did = " ran meanwhile"
	}
	return who + did
}

// formerly says whose an address was before a canary took it.
func formerly(owner core.Block, ptr uint64) string {
	if owner.ID.Generation == 0 || ptr-owner.ID.Ptr >= owner.Bytes {
		return fmt.Sprintf("; the canary is the guard's own, and whose address %#x was before is not known", ptr)
	}
	return fmt.Sprintf("; the canary is the guard's own, and before it address %#x belonged to generation %s tagged %q", ptr, owner.ID.Generation, owner.Tag)
}

// suspect names the launches that may have damaged a place.
func (r *Resource) suspect(f *core.Finding, place watched, b *batch) {
	w := window{from: place.from, to: b.check.at, stream: b.check.stream}
	w.recalls = !place.inBody() // of a body the poison came behind all of the block's uses
	if b.bisecting {
		w.few = bisectSuspects
	}
	r.suspectWithin(f, w)
}

// suspectWithin names the launches that may have changed the victim within w.
func (r *Resource) suspectWithin(f *core.Finding, w window) {
	w.victim = f.Victim.ID.Generation
	var declared bool
	f.Suspects, f.MoreSuspects, declared = r.launches.suspects(w, f.Uses, r.cfg.Advanced.Suspects)
	f.Unranked = len(f.Suspects) > 0 && !declared
}

// damageError is the finding as a typed error. It comes too late for any call
// to return it.
func damageError(f core.Finding) error {
	const op = "guard check"
	g, tag := f.Victim.ID.Generation, f.Victim.Tag
	if f.Kind == names.FindingUseAfterFreeWrite {
		return &core.UseAfterFreeError{Op: op, Generation: g, Block: f.Victim.ID, State: f.Victim.State, Tag: tag}
	}
	return &core.OutOfBoundsError{Op: op, Generation: g, Tag: tag, Offset: f.Offset}
}
