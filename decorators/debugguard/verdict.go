package debugguard

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
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

// judge reads the result of a comparison that the device has done.
func (r *Resource) judge(c *check) {
	mismatches, err := c.verification.Mismatches()
	if err != nil {
		r.count.unchecked.Add(uint64(c.batch.blocks))
		return
	}
	r.count.verified.Add(uint64(c.batch.blocks))
	var found []damage
	for _, m := range mismatches {
		d := c.batch.watched[m.Region].damaged(m)
		if n := len(found); n > 0 && found[n-1].place.rec == d.place.rec && found[n-1].kind == d.kind {
			found[n-1].bytes += d.bytes // another place of the same poison
			continue
		}
		found = append(found, d)
	}
	for _, d := range found {
		r.reportDamage(d, c.batch.stream)
	}
}

// damaged says what a mismatch in the region means.
func (w watched) damaged(m core.Mismatch) damage {
	d := damage{place: w, offset: w.offset + int64(m.Offset), bytes: m.BadBytes, expected: m.Expected, seen: m.Seen}
	switch {
	case w.offset < 0:
		d.kind = core.FindingUnderflow
	case uint64(w.offset) >= w.rec.guard.layout.body:
		d.kind = core.FindingOutOfBoundsWrite
	default:
		d.kind = core.FindingUseAfterFreeWrite
	}
	return d
}

var damageText = map[core.FindingKind]string{
	core.FindingUnderflow:         "bytes before the block were overwritten",
	core.FindingOutOfBoundsWrite:  "bytes behind the block were overwritten",
	core.FindingUseAfterFreeWrite: "the block was written after it was freed",
}

// reportDamage names the victim and the launches that may have done it.
func (r *Resource) reportDamage(d damage, stream core.StreamID) {
	rec := d.place.rec
	rec.mu.Lock()
	f := r.victim(d.kind, rec)
	rec.mu.Unlock()
	f.Offset, f.BadBytes, f.Expected, f.Seen = d.offset, d.bytes, d.expected, d.seen
	f.Suspects = r.launches.suspects(window{from: d.place.from, to: d.place.to, stream: stream}, f.Uses, r.cfg.Suspects)
	f.Text = fmt.Sprintf("%s: %d bytes of generation %s tagged %q changed, the first at offset %d from %#02x to %#02x; %d launches may have done it",
		damageText[d.kind], f.BadBytes, f.Victim.ID.Generation, f.Victim.Tag, f.Offset, f.Expected, f.Seen, len(f.Suspects))
	f.Err = damageError(f)
	r.report(f)
}

// damageError is the finding as a typed error. It comes too late for any call
// to return it.
func damageError(f core.Finding) error {
	const op = "guard check"
	g, tag := f.Victim.ID.Generation, f.Victim.Tag
	if f.Kind == core.FindingUseAfterFreeWrite {
		return &core.UseAfterFreeError{Op: op, Generation: g, Block: f.Victim.ID, State: f.Victim.State, Tag: tag}
	}
	return &core.OutOfBoundsError{Op: op, Generation: g, Tag: tag, Offset: f.Offset}
}
