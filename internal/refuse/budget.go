package refuse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/audit"
)

// Budget returns e, the complete refusal of a budget, after [audit.Check] has looked at it. Each
// refusal goes through here.
func Budget(e *core.OutOfBudgetError) *core.OutOfBudgetError {
	audit.Check(func() error { return Untrue(e) })
	return e
}

// Untrue returns an error if the figures of a refusal do not explain it: they do not add up, there
// was room and nothing stood before the request, or the holders hold more than there is. Else it is
// nil.
func Untrue(e *core.OutOfBudgetError) error {
	limit := e.Limit
	if limit == 0 {
		limit = math.MaxUint64
	}
	charged := e.Live + e.Pending + e.Quarantined + e.Claimed
	if room := e.Limit + e.Lent - min(charged, e.Limit+e.Lent); e.Claim == 0 && e.Limit != 0 && e.Remaining != room {
		return fmt.Errorf("%d bytes remain, and of %d %d are charged and %d lent, which leaves %d: %w", e.Remaining,
			e.Limit, charged,
			e.Lent, room, e)
	}
	switch {
	case e.Lent > e.Pending:
		return fmt.Errorf("%d bytes are lent of %d that are pending: %w", e.Lent, e.Pending, e)
	case e.Wait.Ahead > 0: // it is refused for those
	case e.Remaining >= e.Requested:
		return fmt.Errorf("%d bytes remain for a request of %d, which was refused: %w", e.Remaining, e.Requested, e)
	case e.Claim == 0 && limit-min(limit, charged) >= e.Requested:
		return fmt.Errorf("of %d bytes %d are charged, and a request of %d was refused: %w", limit, charged, e.Requested, e)
	}
	parts := map[core.BlockState]uint64{core.Live: e.Live, core.Retired: e.Pending, core.Quarantined: e.Quarantined,
		core.Claimed: e.Claimed}
	for _, h := range e.Holders {
		if h.Bytes > parts[h.State] {
			return fmt.Errorf("%v is more than what is %v in all: %w", h, h.State, e)
		}
		parts[h.State] -= h.Bytes
	}
	if left := parts[core.Live] + parts[core.Retired] + parts[core.Quarantined] + parts[core.Claimed]; e.MoreBytes > left {
		return fmt.Errorf("%d more holders have %d bytes, and only %d are left: %w", e.MoreHolders, e.MoreBytes, left, e)
	}
	return nil
}

// Waited returns the error of a request for memory that has waited, with how it waited as a part of
// it: of the [core.OutOfBudgetError], or else as a [core.WaitError]. err itself does not change.
// Errors that are no want of memory are returned as they are.
func Waited(err error, w core.Wait, bytes uint64, tag core.Tag) error {
	if w == (core.Wait{}) {
		return err
	}
	short, ok := errors.AsType[*core.OutOfBudgetError](err)
	switch {
	case ok:
		explained := *short
		explained.Wait = also(short.Wait, w)
		if _, bare := err.(*core.OutOfBudgetError); bare { //nolint:errorlint // it is asked whether something wraps it
			return &explained
		}
		return &waited{err, &explained}
	case errors.Is(err, core.ErrOutOfMemory):
		if before, ok := errors.AsType[*core.WaitError](err); ok {
			w, err = also(before.Wait, w), before.Err
		}
		return &core.WaitError{Requested: bytes, Tag: tag, Wait: w, Err: err}
	}
	return err
}

// also is one wait after another.
func also(first, then core.Wait) core.Wait {
	then.For += first.For
	then.Pending = cmp.Or(first.Pending, then.Pending)
	if then.Ahead == 0 {
		then.Ahead, then.AheadBytes, then.First = first.Ahead, first.AheadBytes, first.First
	}
	then.Learning = then.Learning || first.Learning
	return then
}

// waited is an error around a refusal, of which more is known by now.
type waited struct {
	err   error
	short *core.OutOfBudgetError
}

func (e *waited) Error() string { return e.err.Error() + "; " + e.short.Wait.String() }
func (e *waited) Unwrap() error { return e.err }

// As finds the refusal.
func (e *waited) As(target any) bool {
	to, ok := target.(**core.OutOfBudgetError)
	if ok {
		*to = e.short
	}
	return ok
}

// WaitOf is how the request of an error has waited, as far as the error says.
func WaitOf(err error) core.Wait {
	if short, ok := errors.AsType[*core.OutOfBudgetError](err); ok {
		return short.Wait
	}
	if w, ok := errors.AsType[*core.WaitError](err); ok {
		return w.Wait
	}
	return core.Wait{}
}

type waitKey struct{}

// AfterWait is a context for a request that has waited in line already: a layer that refuses it
// says so.
func AfterWait(ctx context.Context, w core.Wait) context.Context {
	return context.WithValue(ctx, waitKey{}, w)
}

// WaitIn is how the request of a context has waited, see [AfterWait].
func WaitIn(ctx context.Context) core.Wait {
	w, _ := ctx.Value(waitKey{}).(core.Wait)
	return w
}
