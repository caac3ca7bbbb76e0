package debugguard

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
)

// refused looks at an upstream's refusal of a use, and returns the error for
// the caller. A use of a block that was freed and is remembered, a pointer
// outside its block and a stream that is not leased are found.
func (r *Resource) refused(err error, use late) error {
	if r.Mode() == Off {
		return err
	}
	var uaf *core.UseAfterFreeError
	var misuse *core.StreamMisuseError
	switch {
	case errors.As(err, &uaf):
		use.id = uaf.Block
		rec := r.ledger.lockAny(use.id)
		if rec == nil {
			return err
		}
		if rec.state() != core.Live {
			return r.staleUse(use, rec)
		}
		rec.mu.Unlock()
	case !errors.As(err, &misuse):
	case misuse.Unleased:
		r.unleased(use, misuse)
	case misuse.Block.Generation != 0 && misuse.Block.Ordinal == r.Ordinal():
		return r.outside(err, use, misuse.Block)
	}
	return err
}

// outside finds a pointer that is not in its block.
func (r *Resource) outside(err error, use late, id core.BlockID) error {
	rec := r.ledger.lock(id)
	if rec == nil {
		return err
	}
	if rec.guard == nil && !rec.contains(id.Ptr) {
		return r.wildPointer(use.op, id, use.stream, rec)
	}
	rec.mu.Unlock()
	return err
}

// unleased reports work on a stream that nobody has leased. It has no victim:
// nothing was enqueued.
func (r *Resource) unleased(use late, err error) {
	now := r.ledger.clock.time(r.ledger.clock.instant())
	r.report(core.Finding{Kind: core.FindingStaleHandle, Err: err,
		Suspects: []core.UseRecord{{Launch: use.launch, Stream: use.stream, Time: now}},
		Text:     fmt.Sprintf("%s for launch %q named stream %v, which is not leased, at %s", use.op, use.launch, use.stream, caller())})
}
