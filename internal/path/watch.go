package path

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
)

// Watch is what a layer asks of the backend that opens a launch's intent: to be called for each of
// its blocks where that is found and locked, in place of finding it itself. It is a value of
// [core.UseRequest.OwnWork], which a layer that is none of this module's passes on; a backend
// that knows nothing of it calls nothing, and the layer does its part when the intent is open.
type Watch interface {
	// Suspects is asked about a block that the backend itself would refuse, with the record that was found without a lock. If
	// it says yes the launch is declined.
	Suspects(id core.BlockID, of *Record) bool
	// Announce is called before the launch is announced on the block of u, with the block's record, under the
	// lock of the block: it takes no other lock of the backend's, and reports nothing. If it says no, or the
	// launch is refused for another cause or aborted, nothing of it is left, and Withdraw is called, with no
	// lock held.
	Announce(in *core.Intent, u *core.PreparedUse, of *Record) bool
	Withdraw(ctx context.Context, in *core.Intent)
	// Finish is called when the launch's ticket was spent behind its work, before that work is recorded. If it returns
	// something, that is told when the launch has ended, with no lock held.
	Finish(in *core.Intent) Finishing
	// ReadsOnly reports whether the runtime knows that the launch writes no device memory.
	ReadsOnly() bool
}

// Finishing is what a layer has to do behind the end of a launch, also if that failed.
type Finishing interface{ Ended(context.Context) }

// ErrDeclined is the refusal of a launch to which Announce said no: who asked knows why.
var ErrDeclined = errors.New("a layer above declined the launch")
