package core

import (
	"context"
	"errors"
)

// LiveChecker is a layer that watches the bytes of blocks, and can compare what
// it watches of those that are live. It is found with [Find]: a comparison
// changes nothing.
type LiveChecker interface {
	// CheckLive queues the comparison of every block that is live, behind its
	// declared uses; the next Drain waits for the verdicts, and what they say is
	// reported. What cannot be compared, as that of a block with an open intent
	// that conflicts, is left out. It ends early with ctx, whose error it
	// returns, and with an error that matches [ErrSticky]. It does not wait for
	// the device unless that is far behind, or nothing below tracks uses.
	CheckLive(ctx context.Context) error
}

// settle has what is live compared, because nobody will free it any more, and
// drains.
func (r *Runtime) settle(ctx context.Context) error {
	var checked error
	if c, ok := Find[LiveChecker](r.resource); ok {
		checked = r.observe("Close", c.CheckLive(ctx))
	}
	if r.poisoned.Load() != nil {
		return checked
	}
	return errors.Join(checked, r.Drain(ctx))
}
