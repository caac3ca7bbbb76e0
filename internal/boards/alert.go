package boards

// Alert is one alerting rule.
type Alert struct {
	// Name begins with Fencepost. docs/alerts.md has a section of that name.
	Name string
	// Expr has no variables: each runtime alerts for itself.
	Expr string
	// For is how long it must hold, as Prometheus writes times; empty means
	// not at all.
	For string
	// Severity is Critical (somebody must look now) or Warning (today).
	Severity Severity
	// Summary is one line, Description what it means; both are templates.
	Summary, Description string
	// Scene plays what the alert is for.
	Scene string
}

// Severity is the value of an alert's label "severity".
type Severity string

// The severities.
const (
	Critical Severity = "critical"
	Warning  Severity = "warning"
)

// on names the runtime in an annotation.
const on = "device {{ $labels.device }} of {{ $labels.instance }}"

// Alerts are all alerting rules.
func Alerts() []Alert {
	var all []Alert
	for _, group := range [][]Alert{healthAlerts(), leakAlerts(), memoryAlerts(), waitAlerts(), lossAlerts()} {
		all = append(all, group...)
	}
	return all
}

func healthAlerts() []Alert {
	return []Alert{
		{
			Name: "FencepostDeviceLost", Severity: Critical, Scene: "lose",
			Expr:        `gpumem_health{state="poisoned"} == 1`,
			Summary:     "The GPU's context is lost: " + on,
			Description: "A driver error took the device's context. The runtime refuses every call, and only a new process gets the device back.",
		},
		{
			Name: "FencepostDegraded", For: "10m", Severity: Warning, Scene: "misuse",
			Expr:        `gpumem_health{state="degraded"} == 1`,
			Summary:     "Something is wrong: " + on,
			Description: "The runtime works and says that it is degraded. gpumem_health_reasons and its health page say why.",
		},
		{
			Name: "FencepostMemoryCorrupt", Severity: Critical, Scene: "corrupt",
			Expr:        newFindings(`kind=~"` + corrupting + `"`),
			Summary:     "Memory is corrupt or may be: {{ $labels.kind }} of \"{{ $labels.tag }}\", " + on,
			Description: "Bytes were changed or read behind their owner's back, or by work that nothing orders. Results since then may be wrong.",
		},
		{
			Name: "FencepostFinding", Severity: Warning, Scene: "misuse",
			Expr:        newFindings(`kind!~"` + corrupting + `"`),
			Summary:     "A bug of memory: {{ $labels.kind }} of \"{{ $labels.tag }}\", " + on,
			Description: "The program misused memory, and was refused or reported before anything was harmed.",
		},
		{
			Name: "FencepostBlocksOutOfUse", Severity: Warning, Scene: "unfenced",
			Expr:        `gpumem_blocks_poisoned > 0`,
			Summary:     "{{ $value }} blocks could not be fenced: " + on,
			Description: "The driver failed to order work on these blocks. They are out of use, and their memory is lost until the process ends.",
		},
	}
}

// corrupting are the kinds after which bytes may be wrong, those of
// fencepost.StopKinds.
const corrupting = "uaf-write|uaf-read|oob-write|underflow|sealed-write|stray-write|missing-fence|reuse-race|use-before-alloc-ready|undeclared-access"

// newFindings are the findings of the last hour. A first finding of a tag is a
// new series that begins at 1, of which an increase knows nothing.
func newFindings(kinds string) string {
	counter := `gpumem_findings_total{` + kinds + `}`
	return "increase(" + counter + "[1h]) > 0\nor\n(" + counter + " > 0 unless max_over_time(" + counter + "[15m] offset 1h))"
}

func leakAlerts() []Alert {
	const live = `gpumem_tag_bytes{state="live"}`
	lowest := func(offset string) string { return `min_over_time(` + live + `[15m]` + offset + `)` }
	return []Alert{
		{
			Name: "FencepostTagOnlyGrows", For: "15m", Severity: Warning, Scene: "leak",
			// The lowest level of each quarter of an hour is above that of the one before.
			Expr: lowest("") + ` > 1.02 * ` + lowest(" offset 15m") +
				"\nand " + lowest(" offset 15m") + ` > 1.02 * ` + lowest(" offset 30m") +
				"\nand " + lowest("") + ` - ` + lowest(" offset 30m") + ` > 2097152`,
			Summary:     "\"{{ $labels.tag }}\" only grows: " + on,
			Description: "The least that the tag held rose three quarters of an hour in a row: a leak, or a cache without a bound.",
		},
		{
			Name: "FencepostGrowsWhileIdle", For: "15m", Severity: Warning, Scene: "leak",
			Expr: `delta(gpumem_memory_bytes{state="live"}[30m]) > 2097152` +
				"\nand ignoring(state) increase(gpumem_launches_total[30m]) == 0",
			Summary:     "Memory grows while nothing is launched: " + on,
			Description: "Live memory grew by {{ $value | humanize1024 }}B in half an hour in which the device was given no work.",
		},
	}
}

func memoryAlerts() []Alert {
	return []Alert{
		{
			Name: "FencepostRefusals", For: "5m", Severity: Warning, Scene: "refuse",
			Expr: `sum without (reason) (rate(gpumem_refusals_total{reason=~"out_of_budget|out_of_memory"}[5m]))` +
				"\n/ (" + `sum without (reason) (rate(gpumem_refusals_total{reason=~"out_of_budget|out_of_memory"}[5m])) + rate(gpumem_allocations_total[5m])) > 0.01`,
			Summary:     "{{ $value | humanizePercentage }} of requests for memory are refused: " + on,
			Description: "Callers are refused for want of budget or of memory. The refusal says who holds it.",
		},
		{
			Name: "FencepostQuarantinePressure", For: "5m", Severity: Warning, Scene: "pressure",
			Expr:        `increase(gpumem_guard_events_total{event="relieved"}[15m]) > 0`,
			Summary:     "The guard gives up quarantine to serve requests: " + on,
			Description: "Requests would have been refused had the guard not given freed memory up early. It sees late writes less well, and the budget is too tight for it.",
		},
		{
			Name: "FencepostLedgerDrift", For: "15m", Severity: Warning, Scene: "drift",
			Expr:        `abs(gpumem_drift_bytes) > 0`,
			Summary:     "The driver's pool and the ledger disagree by {{ $value | humanize1024 }}B: " + on,
			Description: "Memory of the runtime's pool was allocated or freed around the runtime, or its books are wrong.",
		},
		{
			Name: "FencepostForeignMemory", For: "15m", Severity: Warning, Scene: "foreign",
			Expr:        `gpumem_budget_limit_bytes + gpumem_device_foreign_bytes > gpumem_device_total_bytes`,
			Summary:     "The budget promises {{ $value | humanize1024 }}B with what others hold, more than there is: " + on,
			Description: "Other processes or libraries hold so much of the device that the budget cannot be met: allocations will fail in the driver instead of being refused with a reason.",
		},
	}
}

func waitAlerts() []Alert {
	return []Alert{
		{
			Name: "FencepostFreesStuck", For: "10m", Severity: Warning, Scene: "stuck",
			Expr: `min_over_time(gpumem_memory_bytes{state="pending"}[5m]) > 0` +
				"\nand ignoring(state) increase(gpumem_free_to_reusable_seconds_count[5m]) == 0",
			Summary:     "{{ $value | humanize1024 }}B are freed and never become reusable: " + on,
			Description: "Frees are queued and the device has passed none of them for minutes: a kernel hangs, or a stream waits for something that does not come.",
		},
		{
			Name: "FencepostStreamsExhausted", For: "5m", Severity: Warning, Scene: "exhaust",
			Expr:        `min_over_time(gpumem_streams_waiting[2m]) > 0`,
			Summary:     "{{ $value }} callers wait for a stream: " + on,
			Description: "Every stream is leased, and callers have been waiting for minutes.",
		},
		{
			Name: "FencepostReadingsOld", For: "5m", Severity: Warning, Scene: "deaf",
			Expr:        `changes(gpumem_device_read_timestamp_seconds[5m]) == 0`,
			Summary:     "The device has not been read for minutes: " + on,
			Description: "The runtime cannot ask the driver for the device's memory: it does not answer, or fails. What dashboards show of the device is old.",
		},
	}
}

func lossAlerts() []Alert {
	return []Alert{
		{
			Name: "FencepostSpansLost", For: "10m", Severity: Warning, Scene: "failspans",
			Expr:        `increase(gpumem_spans_dropped_total[10m]) + increase(gpumem_spans_failed_total[10m]) > 0`,
			Summary:     "{{ $labels.instance }} lost {{ $value | humanize }} spans in ten minutes",
			Description: "The exporter refused them, or its queue was full. Traces have holes.",
		},
		{
			Name: "FencepostLogRecordsLost", Severity: Warning, Scene: "droplog",
			Expr:        `increase(gpumem_log_records_dropped_total[15m]) > 0`,
			Summary:     "{{ $value | humanize }} log records were lost: " + on,
			Description: "A sink of the log did not keep up or failed to write.",
		},
		{
			Name: "FencepostIncidentsLost", Severity: Warning, Scene: "badfolder",
			Expr:        `increase(gpumem_incidents_total{outcome=~"dropped|failed"}[1h]) > 0`,
			Summary:     "Incidents were not written ({{ $labels.outcome }}): " + on,
			Description: "A memory bug was found, and its file could not be written. The log has its text; the stacks are lost.",
		},
	}
}
