package refuse

import (
	"fmt"
	"math"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/audit"
)

// Budget returns the refusal of a budget. Each that is made goes through here when it is complete, for [audit.Check].
func Budget(e *core.OutOfBudgetError) *core.OutOfBudgetError {
	audit.Check(func() error { return Untrue(e) })
	return e
}

// Untrue is the error of a refusal whose figures do not say why the request was refused: there was room for it, or its
// holders hold more than there is. It is nil for all others.
func Untrue(e *core.OutOfBudgetError) error {
	limit := e.Limit
	if limit == 0 {
		limit = math.MaxUint64
	}
	charged := e.Live + e.Pending + e.Quarantined + e.Claimed
	switch {
	case e.Remaining >= e.Requested:
		return fmt.Errorf("%d bytes remain for a request of %d, which was refused: %w", e.Remaining, e.Requested, e)
	case e.Claim == 0 && limit-min(limit, charged) >= e.Requested:
		return fmt.Errorf("of %d bytes %d are charged, and a request of %d was refused: %w", limit, charged, e.Requested, e)
	}
	parts := map[core.BlockState]uint64{core.Live: e.Live, core.Retired: e.Pending, core.Quarantined: e.Quarantined, core.Claimed: e.Claimed}
	for _, h := range e.Holders {
		if h.Bytes > parts[h.State] {
			return fmt.Errorf("%v is more than what is %v in all: %w", h, h.State, e)
		}
		parts[h.State] -= h.Bytes
	}
	return nil
}
