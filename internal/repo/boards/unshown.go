package boards

import "github.com/fencepost-gpu/fencepost/telemetry"

// Unshown are the metrics that no board shows, each with its reason.
func Unshown() map[telemetry.MetricName]string {
	return map[telemetry.MetricName]string{
		telemetry.MetricMemoryOutstandingPeak: "the peak of live bytes is what a tag's owner can lower; this one is for those who size the budget, by hand",
		telemetry.MetricBudgetClaims:          "the claimed bytes say what is held; how many claims that is answers no question of an operator",
		telemetry.MetricAccountingUnderflows:  "a bug of the runtime itself: it is the reason ledger_drift of the health, and nothing can play it",
		telemetry.MetricEventSpansDropped:     "refusals have panels of their own; how many of them left no span matters only to who misses one",
	}
}
