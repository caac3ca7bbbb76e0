package boards

// healthStates are the values that queries give to the states of health.
var healthStates = []State{{"0", "ok", "green"}, {"1", "degraded", "orange"}, {"2", "poisoned", "red"}, {"3", "closed", "text"}}

// overviewNow is what there is at this moment. A process that is gone is not.
func overviewNow() Row {
	return Row{Title: "Now", Panels: []Panel{
		{
			Title: "Health", Kind: Stat, Unit: Count, Width: 6, Link: "guard",
			Shows:   "How many runtimes are in each state.",
			Bad:     "A runtime is degraded: it works, and something is wrong. Poisoned: its device is lost and it refuses every call.",
			Do:      "For degraded look at the reasons below. A poisoned process must be restarted; its incident names the launches that were under way.",
			Levels:  []Level{{1, "green", "ok"}, {1, "orange", "degraded"}, {1, "red", "poisoned"}, {1, "text", "closed"}},
			Queries: []Query{{Expr: `sum by (state) (gpumem_health{@}) > 0`, Legend: "{{state}}", Proof: moves("lose", 1, "state", "poisoned")}},
		},
		{
			Title: "Firing alerts", Kind: Stat, Unit: Count, Width: 6, Link: "overview#Alerts", None: "none",
			Shows:   "Alerts of warning or critical that fire, if Prometheus has the rules.",
			Bad:     "Any.",
			Do:      "See which they are below.",
			Levels:  []Level{{From: 1, Color: "red"}},
			Queries: []Query{{Expr: `count(ALERTS{@process, alertname=~"Fencepost.+", alertstate="firing", severity!="info"})`, Legend: "alerts", Proof: moves("corrupt", 1)}},
		},
		{
			Title: "Memory bugs found", Kind: Stat, Unit: Count, Width: 6, Link: "guard#Findings by kind and victim",
			Shows:  "Findings within the time range, of processes that have ended or were restarted too.",
			Bad:    "Any finding is a bug; those of corrupt memory make results doubtful.",
			Do:     "Open the board of the guard, then the incident file.",
			Levels: []Level{{From: 1, Color: "red"}},
			Queries: []Query{{Expr: `sum(max_over_time(gpumem_findings_total{@}[$__range]))`, Legend: "findings", Proof: moves("misuse", 1),
				Raw: "one finding a week must not vanish from the board"}},
		},
		{
			Title: "Refused a second", Kind: Stat, Unit: OpsASecond, Width: 6, Link: "overview#Refusals by reason",
			Shows:   "Allocations and reservations that callers were refused.",
			Bad:     "More than nothing: requests fail, or wait and try again.",
			Do:      "The last row says why; the refusal itself says who holds the memory.",
			Levels:  []Level{{From: 0.001, Color: "orange"}},
			Queries: []Query{{Expr: `sum(rate(gpumem_refusals_total{@}[$__rate_interval]) and on (job, instance, device) gpumem_health{@, state="ok"})`, Legend: "refused", Proof: moves("refuse", 5)}},
		},
		{
			Title: "Live memory", Kind: Stat, Unit: Bytes, Width: 6, Link: "overview#Live memory by tag",
			Shows: "Device memory that is allocated, padding included: at the last scrape, and the most within the last minute, each runtime's at its own time.",
			Bad:   "It is near the budget, or higher than this service ever needs.",
			Do:    "See below which tag holds it.",
			Queries: []Query{
				{Expr: `sum(gpumem_memory_bytes{@, state="live"})`, Legend: "now", Proof: moves("hold", 60*mib)},
				{Expr: `sum(gpumem_memory_window_peak_bytes{@, state="live", window="60s"})`, Legend: "in a minute", Proof: moves("hold", 60*mib)},
			},
		},
		{
			Title: "Fullest device", Kind: Stat, Unit: Share, Width: 6, Link: "overview#The whole device",
			Shows:   "How much of the fullest device is in use, by whomever.",
			Bad:     "Close to 1 the driver refuses what the budget admits.",
			Do:      "See whether it is ours.",
			Levels:  []Level{{From: 0.9, Color: "orange"}, {From: 0.97, Color: "red"}},
			Queries: []Query{{Expr: `max(1 - gpumem_device_free_bytes{@} / gpumem_device_total_bytes{@})`, Legend: "in use", Proof: moves("foreign", 0.2)}},
		},
		{
			Title: "Fullest budget", Kind: Stat, Unit: Share, Width: 6, Link: "overview#Memory by state, and the budget",
			Shows: "The share of its budget that the fullest device is charged for: live, pending, quarantined and claimed memory. Above 1 memory is lent: what is freed on a stream may be " +
				"allocated there again before the device has passed the free, and is charged twice until then, though the device has it once.",
			Bad:     "Close to 1 the next large request is refused, but for what it can borrow on its own stream.",
			Do:      "See which state and which tag holds it; raise the budget only if the device has the memory.",
			Levels:  []Level{{From: 0.8, Color: "orange"}, {From: 0.95, Color: "red"}},
			Queries: []Query{{Expr: `max(gpumem_budget_charged_bytes{@} / (gpumem_budget_limit_bytes{@} > 0))`, Legend: "charged", Proof: moves("hold", 0.2)}},
		},
		{
			Title: "Time to full", Kind: Stat, Unit: Seconds, Width: 6, Link: "overview#Growth by tag", None: "not within a day",
			Shows:  "When the device or the budget is full if the trend of the last ten minutes goes on, if that is within a day. A trend is that even the least of the last five minutes is higher than that of the five before.",
			Bad:    "Less than it takes you to act.",
			Do:     "See which tag grows.",
			Levels: []Level{{From: 0, Color: "red"}, {From: 3600, Color: "orange"}},
			Queries: []Query{
				{Expr: deviceFull, Legend: "device", Proof: moves("leak", 10)},
				{Expr: budgetFull, Legend: "budget", Proof: moves("leak", 10)},
			},
		},
	}}
}

// When the device and the budget are full: what is left over how fast it goes,
// where even the least that was in use has risen, for ten minutes at least.
const (
	deviceFull = `min(gpumem_device_free_bytes{@} / (-deriv(gpumem_device_free_bytes{@}[10m]) > 0)` +
		` and (gpumem_device_total_bytes{@} - max_over_time(gpumem_device_free_bytes{@}[5m])) > 1.02 * (gpumem_device_total_bytes{@} - max_over_time(gpumem_device_free_bytes{@}[5m] offset 5m))` +
		` and gpumem_device_free_bytes{@} offset 10m) < 86400`
	budgetFull = `min((gpumem_budget_limit_bytes{@} - gpumem_budget_charged_bytes{@} > 0) / (deriv(gpumem_budget_charged_bytes{@}[10m]) > 0)` +
		` and min_over_time(gpumem_budget_charged_bytes{@}[5m]) > 1.02 * min_over_time(gpumem_budget_charged_bytes{@}[5m] offset 5m)` +
		` and gpumem_budget_charged_bytes{@} offset 10m) < 86400`
)

func overviewWrong() Row {
	return Row{Title: "Is something wrong?", Panels: []Panel{
		{
			Title: "Alerts", Kind: Table, Unit: Count, Width: 12, Height: 6, None: "none fires",
			Shows:   "The alerts that fire, if Prometheus has the rules.",
			Bad:     "critical: look now. warning: today.",
			Do:      "docs/operate.md has a section on each: what it means, where to look first, what to do then.",
			States:  []State{{"critical", "critical", "red"}, {"warning", "warning", "orange"}, {"info", "info", "blue"}},
			Columns: []Column{{Label: "severity", Heading: "severity"}, {Label: "alertname", Heading: "alert"}, {Label: "instance", Heading: "instance"}, {Label: "device", Heading: "device"}},
			Link:    "guard",
			Queries: []Query{{Expr: `sort_desc(max by (severity, alertname, instance, device) (ALERTS{@process, alertname=~"Fencepost.+", alertstate="firing"}))`,
				Proof: moves("corrupt", 1, "alertname", "FencepostMemoryCorrupt")}},
		},
		{
			Title: "Why not well now", Kind: Table, Unit: Count, Width: 12, Height: 6, None: "all are well",
			Shows:   "The reasons of each runtime that is degraded or poisoned.",
			Bad:     "Any.",
			Do:      "docs/operate.md says of each reason what it means and what to do.",
			Columns: []Column{{Label: "reason", Heading: "reason"}, {Label: "instance", Heading: "instance"}, {Label: "device", Heading: "device"}},
			Link:    "guard#Why not well",
			Queries: []Query{{Expr: `max by (reason, instance, device) (gpumem_health_reasons{@}) == 1`, Proof: moves("misuse", 1, "reason", "findings")}},
		},
	}}
}

// annotationsOf are what every board marks.
func annotationsOf() []Annotation {
	const before = " offset 5m"
	rises := func(by, series string) string {
		sum := func(offset string) string {
			return `sum by (instance, device, ` + by + `) (` + series + `{@}` + offset + `)`
		}
		return sum("") + ` > ` + sum(before)
	}
	return []Annotation{
		{Name: "Findings", Color: "red", Title: "Memory bug: {{kind}}", Query: Query{Expr: rises("kind", "gpumem_findings_total"), Proof: moves("misuse", 1, "kind", "double-free"), Raw: "compared with itself"}},
		{Name: "Restarts", Color: "orange", Title: "Runtime started", At: true, Query: Query{Expr: `1000 * max by (instance, device) (gpumem_runtime_start_time_seconds{@})`, Proof: Proof{Scene: "quiet", After: 1.7e12}}},
		{Name: "Guard switches", Color: "purple", Title: "Guard: {{mode}}", Query: Query{Expr: rises("mode", "gpumem_guard_mode"), Proof: moves("hunt", 1, "mode", "hunt")}},
		{Name: "Dumps", Color: "blue", Title: "Dump: {{trigger}}", Query: Query{Expr: rises("trigger", "gpumem_dumps_total"), Proof: moves("corrupt", 1, "trigger", "finding"), Raw: "compared with itself"}},
	}
}
