package metrics

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
)

// Reason classifies the errors that callers are told. It is a small fixed
// set, so that it can be a metric label and index an array.
type Reason uint8

// The reasons. Of an error that has several the first listed here counts.
const (
	// ReasonOutOfBudget: a budget refused what would fit it if others held less.
	ReasonOutOfBudget Reason = iota
	// ReasonExceedsBudget: a budget refused a request that is larger than all
	// of it. That says something of who asks, and nothing of the runtime.
	ReasonExceedsBudget
	// ReasonClaimExceeded: a request needed more than was left of the reservation
	// that it names. That too says something of who asks.
	ReasonClaimExceeded
	// ReasonOutOfMemory: the driver had no memory left.
	ReasonOutOfMemory
	// ReasonDriver: any other failed driver call.
	ReasonDriver
	// ReasonUseAfterFree: the block was not live.
	ReasonUseAfterFree
	// ReasonOutOfBounds: bytes around a block had changed.
	ReasonOutOfBounds
	// ReasonStreamMisuse: the stream-ordered contract was violated, or the
	// stack cannot do the operation.
	ReasonStreamMisuse
	// ReasonInvalidRequest: the request itself was malformed.
	ReasonInvalidRequest
	// ReasonClosed: the resource was closed.
	ReasonClosed
	// ReasonDeadlineExceeded: the caller's deadline passed while waiting.
	ReasonDeadlineExceeded
	// ReasonCanceled: the caller gave up while waiting.
	ReasonCanceled
	// ReasonOther: none of these.
	ReasonOther
)

// reasonOther is the name that OpenTelemetry's conventions reserve.
const reasonOther = "_OTHER"

const reasons = len(reasonTable)

var reasonTable = [...]struct {
	name string
	is   error
}{
	ReasonOutOfBudget:      {"out_of_budget", core.ErrOutOfBudget},
	ReasonExceedsBudget:    {"exceeds_budget", nil}, // an ErrOutOfBudget, see ReasonOf
	ReasonClaimExceeded:    {"claim_exceeded", core.ErrClaimExceeded},
	ReasonOutOfMemory:      {"out_of_memory", core.ErrOutOfMemory},
	ReasonDriver:           {"driver_error", core.ErrDriver},
	ReasonUseAfterFree:     {"use_after_free", core.ErrUseAfterFree},
	ReasonOutOfBounds:      {"out_of_bounds", core.ErrOutOfBounds},
	ReasonStreamMisuse:     {"stream_misuse", core.ErrStreamMisuse},
	ReasonInvalidRequest:   {"invalid_request", core.ErrInvalidRequest},
	ReasonClosed:           {"closed", core.ErrClosed},
	ReasonDeadlineExceeded: {"deadline_exceeded", context.DeadlineExceeded},
	ReasonCanceled:         {"canceled", context.Canceled},
	ReasonOther:            {reasonOther, nil},
}

// Reasons lists all reasons, in their order.
func Reasons() []Reason {
	all := make([]Reason, reasons)
	for i := range all {
		all[i] = Reason(i)
	}
	return all
}

// ReasonOf classifies err, which must not be nil. It allocates nothing.
func ReasonOf(err error) Reason {
	for i, row := range reasonTable[:ReasonOther] {
		if !errors.Is(err, row.is) {
			continue
		}
		short, ok := errors.AsType[*core.OutOfBudgetError](err)
		if Reason(i) == ReasonOutOfBudget && ok && short.Limit != 0 && short.Requested > short.Limit {
			return ReasonExceedsBudget // no budget of that limit could grant it
		}
		return Reason(i)
	}
	return ReasonOther
}

// String is the reason as it appears in metrics, such as "out_of_budget".
func (r Reason) String() string {
	if int(r) < reasons {
		return reasonTable[r].name
	}
	return reasonOther
}
