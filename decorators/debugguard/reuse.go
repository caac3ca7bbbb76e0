package debugguard

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
)

// late is a use of a block that is not live any more.
type late struct {
	op     string
	id     core.BlockID
	stream core.StreamID
	// launch is the name of the launch, number its number if it has one yet.
	launch string
	number uint64
}

// staleUse unlocks rec and reports that its block is used after its free. If
// its memory is another block's by now, the use races that block's.
func (r *Resource) staleUse(use late, rec *record) error {
	b := rec.block()
	err := &core.UseAfterFreeError{Op: use.op, Generation: use.id.Generation, Block: use.id, State: b.State, Tag: b.Tag}
	f := r.victim(core.FindingStaleHandle, rec)
	rec.mu.Unlock()
	if r.Mode() == Off {
		return err
	}
	text := fmt.Sprintf("generation %s tagged %q is %s and was named by %s", b.ID.Generation, b.Tag, b.State, use.op)
	if heir, ok := r.ledger.heir(b); ok {
		f.Kind = core.FindingReuseRace
		text = fmt.Sprintf("%s; its memory at %#x belongs to generation %s tagged %q by now, which is %s", text, b.ID.Ptr, heir.ID.Generation, heir.Tag, heir.State)
	}
	f.Suspects = []core.UseRecord{{LaunchID: use.number, Launch: use.launch, Stream: use.stream, Time: r.ledger.clock.time(r.ledger.clock.instant())}}
	f.Text, f.Err = text+", at "+caller(), err
	r.report(f)
	return err
}

// heir returns the newest block that was allocated after b and has some of its
// bytes, as far as the ledger remembers. It looks at every record: it is asked
// only about a misuse.
func (l *ledger) heir(b core.Block) (heir core.Block, ok bool) {
	look := func(other core.Block) {
		overlaps := other.ID.Ptr-b.ID.Ptr < b.Bytes || b.ID.Ptr-other.ID.Ptr < other.Bytes
		if overlaps && other.ID.Generation > max(b.ID.Generation, heir.ID.Generation) {
			heir, ok = other, true
		}
	}
	l.eachTombstone(look)
	for g, rec := range l.all {
		look(rec.describe(g))
	}
	return heir, ok
}
