package boards

import "github.com/fencepost-gpu/fencepost/telemetry"

// Unshown are the metrics that no board shows, each with its reason.
func Unshown() map[telemetry.MetricName]string {
	return map[telemetry.MetricName]string{
		telemetry.MetricBudgetClaims:         "the claimed bytes say what is held; how many claims that is answers no question of an operator",
		telemetry.MetricAccountingUnderflows: "a bug of the runtime itself: it is the reason ledger_drift of the health, and nothing can play it",
	}
}
