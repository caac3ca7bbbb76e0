package boards

// Unshown are the metrics that no board shows, each with its reason.
func Unshown() map[string]string {
	return map[string]string{
		"gpumem_memory_outstanding_peak_bytes": "the peak of live bytes is what a tag's owner can lower; this one is for those who size the budget, by hand",
		"gpumem_pool_moved_bytes_total":        "how often pages are moved is shown; how many bytes that is matters only to who tunes the pool",
		"gpumem_pool_move_seconds_total":       "how often pages are moved is shown; what it takes matters only to who tunes the pool",
		"gpumem_allocated_bytes_total":         "how often memory is allocated is shown; how many bytes that is matters to who looks for a program to improve",
		"gpumem_budget_claims":                 "the claimed bytes say what is held; how many claims that is answers no question of an operator",
		"gpumem_accounting_underflows_total":   "a bug of the runtime itself: it is the reason ledger_drift of the health, and nothing can play it",
		"gpumem_event_spans_dropped_total":     "refusals have panels of their own; how many of them left no span matters only to who misses one",
	}
}
