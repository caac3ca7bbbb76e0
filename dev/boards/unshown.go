package boards

// Unshown are the metrics that no board shows, each with its reason.
func Unshown() map[string]string {
	return map[string]string{
		"gpumem_memory_outstanding_peak_bytes": "the peak of live bytes is what a tag's owner can lower; this one is for those who size the budget, by hand",
		"gpumem_memory_peak_bytes":             "the peaks of the last minutes are shown; the highest of all times is for those who size the budget, by hand",
		"gpumem_memory_requested_peak_bytes":   "as the peak itself",
		"gpumem_memory_requested_bytes":        "what it lacks to live memory is the guard's red zones, which matter to who tunes the guard",
		"gpumem_pool_reserved_peak_bytes":      "what the pool holds is shown over time; its highest is for those who set its limit",
		"gpumem_pool_used_peak_bytes":          "as what it holds",
		"gpumem_budget_refusals_total":         "what callers were refused is shown, by reason; what the guard then cured is an alert of its own",
		"gpumem_guard_quarantine_bytes":        "quarantine is shown by tag",
		"gpumem_guard_quarantine_blocks":       "blocks by state are shown",
		"gpumem_isolated_bytes":                "only hunt:unmap isolates blocks, for some minutes and on purpose",
		"gpumem_isolated_peak_bytes":           "as what is isolated",
		"gpumem_isolated_address_bytes":        "as what is isolated",
		"gpumem_held_limit_bytes":              "it is the budget, or the limit of the pool, which are shown; more than it held for a minute is the reason memory_limit of the health",
		"gpumem_sticky_errors_total":           "a lost device is shown as such; how many calls said so answers no question of an operator",
		"gpumem_recorders_dropped_total":       "each is a finding, with the place in the code",
		"gpumem_deallocations_total":           "calls are shown by operation",
		"gpumem_drift_read_timestamp_seconds":  "the age of the readings is shown of the device's memory, which is read with it",
		"gpumem_spans_started_total":           "those that ended are shown",
		"gpumem_pool_moved_bytes_total":        "how often pages are moved is shown; how many bytes that is matters only to who tunes the pool",
		"gpumem_pool_move_seconds_total":       "how often pages are moved is shown; what it takes matters only to who tunes the pool",
		"gpumem_allocated_bytes_total":         "how often memory is allocated is shown; how many bytes that is matters to who looks for a program to improve",
		"gpumem_budget_claims":                 "the claimed bytes say what is held; how many claims that is answers no question of an operator",
		"gpumem_accounting_underflows_total":   "a bug of the runtime itself: it is the reason ledger_drift of the health, and nothing can play it",
		"gpumem_device_times_lost_total":       "how many launches have no span of the device matters only to who misses one",
		"gpumem_event_spans_dropped_total":     "refusals have panels of their own; how many of them left no span matters only to who misses one",
	}
}
