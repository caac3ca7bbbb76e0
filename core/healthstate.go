package core

import "time"

// HealthState is how well a runtime is.
type HealthState uint8

// The states, each worse than the one before.
const (
	// HealthOK: work is admitted, and nothing is known that should be looked
	// into.
	HealthOK HealthState = iota
	// HealthDegraded: work is admitted, and somebody should look into the
	// reasons.
	HealthDegraded
	// HealthClosed: the runtime was closed; every call is refused.
	HealthClosed
	// HealthPoisoned: the device's context was lost; every call is refused,
	// and only a new process gets the device back. It stays so after Close.
	HealthPoisoned
)

// HealthStates are all states.
func HealthStates() []HealthState {
	return []HealthState{HealthOK, HealthDegraded, HealthClosed, HealthPoisoned}
}

// String is "ok", "degraded", "closed" or "poisoned".
func (s HealthState) String() string {
	switch s {
	case HealthOK:
		return "ok"
	case HealthDegraded:
		return "degraded"
	case HealthClosed:
		return "closed"
	case HealthPoisoned:
		return "poisoned"
	}
	return "unknown"
}

// HealthReason is the stable name of a reason for a state that is not ok.
type HealthReason string

// The reasons. All but the first belong to a runtime that is degraded, and
// are given by the root package's Runtime, which says when each begins and
// ends.
const (
	// HealthStickyError: the driver returned an error that lost the context.
	HealthStickyError HealthReason = "sticky_error"
	// HealthFindings: a memory bug was found.
	HealthFindings HealthReason = "findings"
	// HealthLedgerDrift: the books and the driver's pool do not agree, or a
	// counter of the books went below zero.
	HealthLedgerDrift HealthReason = "ledger_drift"
	// HealthRefusalStorm: many requests for memory are refused that the budget
	// could grant if others held less.
	HealthRefusalStorm HealthReason = "refusal_storm"
	// HealthTelemetryLoss: log records, incidents or spans were lost.
	HealthTelemetryLoss HealthReason = "telemetry_loss"
	// HealthPoisonedBlocks: blocks could not be fenced, and can be neither
	// used nor reused.
	HealthPoisonedBlocks HealthReason = "poisoned_blocks"
	// HealthGuardGaps: the guard left out checks that it should have made.
	HealthGuardGaps HealthReason = "guard_gaps"
	// HealthStreamsExhausted: every stream is leased and callers wait.
	HealthStreamsExhausted HealthReason = "streams_exhausted"
)

// HealthReasons are all reasons, the gravest first.
func HealthReasons() []HealthReason {
	return []HealthReason{HealthStickyError, HealthPoisonedBlocks, HealthFindings, HealthLedgerDrift, HealthRefusalStorm,
		HealthStreamsExhausted, HealthGuardGaps, HealthTelemetryLoss}
}

// HealthSign is one reason as it holds now.
type HealthSign struct {
	Reason HealthReason
	// Text says in words what was seen.
	Text string
	// Since is when the reason began to hold.
	Since time.Time
}
