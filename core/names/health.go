package names

// The states of health, core.Health.State, whose comment says what each means.
const (
	HealthOK       = "ok"
	HealthDegraded = "degraded"
	HealthClosed   = "closed"
	HealthPoisoned = "poisoned"
)

// HealthStates are all of them, each worse than the one before.
var HealthStates = [...]string{HealthOK, HealthDegraded, HealthClosed, HealthPoisoned}

// The reasons for a state that is not ok, core.HealthSign.Reason, whose
// comment says what each means.
const (
	HealthStickyError      = "sticky_error"
	HealthFindings         = "findings"
	HealthLedgerDrift      = "ledger_drift"
	HealthRefusalStorm     = "refusal_storm"
	HealthMemoryLimit      = "memory_limit"
	HealthTelemetryLoss    = "telemetry_loss"
	HealthPoisonedBlocks   = "poisoned_blocks"
	HealthGuardGaps        = "guard_gaps"
	HealthStreamsExhausted = "streams_exhausted"
)

// The notes of health, in Notes of core.Health, whose comment says what each means. No note makes a
// runtime degraded.
const (
	HealthNoteWaiting  = "waiting"
	HealthNoteLearning = "learning"
)

// HealthReasons are all reasons, the gravest first.
var HealthReasons = [...]string{HealthStickyError, HealthPoisonedBlocks, HealthFindings, HealthLedgerDrift, HealthRefusalStorm,
	HealthMemoryLimit, HealthStreamsExhausted, HealthGuardGaps, HealthTelemetryLoss}
