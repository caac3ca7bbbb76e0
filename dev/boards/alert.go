package boards

// Alert is one alerting rule.
type Alert struct {
	// Name begins with Fencepost. OperatePage has a section of that name.
	Name string
	// Expr has no variables: each runtime alerts for itself.
	Expr string
	// For is how long it must hold, as Prometheus writes times; empty means
	// not at all.
	For string
	// KeepFiring is how long it goes on firing when Expr no longer holds: a
	// missed scrape or a restart must not resolve it.
	KeepFiring string
	// Board is where an operator looks first: the name of a board's file.
	Board string
	// Process says that it is of a process and not of a device.
	Process bool
	// Severity is Critical (an operator must look now), Warning (today) or Info
	// (need not be looked at).
	Severity Severity
	// Summary is one sentence that is always the same, Description a template of what it
	// means here; the name of the runtime is put before it.
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
	Info     Severity = "info"
)

// description says of which runtime it is.
func (a Alert) description() string {
	if a.Process {
		return "{{ $labels.instance }}: " + a.Description
	}
	return "Device {{ $labels.device }} of {{ $labels.instance }}: " + a.Description
}

// Alerts are all alerting rules.
func Alerts() []Alert {
	return []Alert{
		{Name: "FencepostDeviceLost", KeepFiring: "30m", Severity: Critical, Board: "guard", Scene: "lose",
			Expr:        `gpumem_health{state="poisoned"} == 1`,
			Summary:     "A GPU's context is lost, and its process refuses every call.",
			Description: "A driver error took the device's context. The runtime refuses every call, and only a new process gets the device back. Of the Xids in the kernel log 13 and 31 are mostly the application's, 43 and 45 follow another, 94 asks for a restart of the process; 48, 64, 74, 79 and 95 ask for draining the host."},
		{Name: "FencepostDegraded", For: "5m", KeepFiring: "15m", Severity: Warning, Board: "guard", Scene: "misuse",
			// A process that was not there five minutes ago has not been degraded for ten.
			Expr:        lowest(`gpumem_health{state="degraded"}`) + ` == 1 and last_over_time(gpumem_health{state="degraded"}` + bridge + ` offset 5m) >= 0`,
			Summary:     "A runtime works and says that something is wrong.",
			Description: "The runtime works and says that it is degraded" + reasons + ". " + OperatePage + " says what each reason means."},
		{Name: "FencepostMemoryCorrupt", KeepFiring: "15m", Severity: Critical, Board: "guard", Scene: "corrupt",
			Expr:        findings(`kind=~"` + corrupting + `"`),
			Summary:     "Memory is corrupt or may be.",
			Description: "{{ $value }} of {{ $labels.kind }}. Bytes were changed or read behind their owner's back, or by work that nothing orders. Results since then may be wrong."},
		{Name: "FencepostFinding", KeepFiring: "15m", Severity: Warning, Board: "guard", Scene: "recorder",
			Expr:        findings(`kind!~"` + corrupting + `|double-free|sticky-error|illegal-access|oom"`), // for the last four there are alerts of their own
			Summary:     "The program misuses memory.",
			Description: "{{ $value }} of {{ $labels.kind }}. The program misused memory, and was refused or reported before anything was harmed."},
		{Name: "FencepostDoubleFree", KeepFiring: "15m", Severity: Info, Board: "guard", Scene: "misuse",
			Expr:        findings(`kind="double-free"`),
			Summary:     "Memory is freed twice.",
			Description: "{{ $value }} times. The program frees what was freed before, as with an explicit free beside a deferred one. Nothing was freed twice and nothing was harmed."},
		{Name: "FencepostBlocksOutOfUse", KeepFiring: "15m", Severity: Warning, Board: "guard", Scene: "unfenced",
			Expr:        `gpumem_blocks_poisoned > 0`,
			Summary:     "Blocks could not be fenced and are out of use.",
			Description: "The driver failed to order work on {{ $value }} blocks. They are out of use, and their memory is lost until the process ends."},
		{Name: "FencepostTagOnlyGrows", For: "30m", KeepFiring: "1h", Severity: Warning, Board: "overview", Scene: "leak",
			// The lowest level of each quarter of an hour is above that of the one
			// before, for longer than a cache takes to fill. A restart frees everything, and cures nothing: the alert goes on
			// for the hour that it takes to see the leak again.
			Expr: least("") + ` > 1.02 * ` + least(" offset 15m") +
				"\nand " + least(" offset 15m") + ` > 1.02 * ` + least(" offset 30m") +
				"\nand " + least("") + ` - ` + least(" offset 30m") + ` > 2097152`,
			Summary:     "The memory of a tag only grows.",
			Description: "The least that \"{{ $labels.tag }}\" held in a quarter of an hour has been rising for an hour: a leak, or a cache without a bound."},
		{Name: "FencepostGrowsWhileIdle", For: "15m", KeepFiring: "30m", Severity: Warning, Board: "overview", Scene: "leak",
			// Twice a quarter of an hour, or a service that loads its model and waits
			// for requests would be one that grows.
			Expr: `delta(` + liveBytes + `[15m]) > 1048576` +
				"\nand delta(" + liveBytes + `[15m] offset 15m) > 1048576` +
				"\nand ignoring(state) increase(gpumem_launches_total[30m]) == 0",
			Summary:     "Memory grows while nothing is launched.",
			Description: "Live memory grew by {{ $value | humanize1024 }}B in a quarter of an hour, and in the one before, and the device was given no work."},
		{Name: "FencepostRefusals", For: "5m", KeepFiring: "15m", Severity: Warning, Board: "overview", Scene: "refuse",
			Expr: `sum without (reason) (rate(gpumem_refusals_total{reason=~"out_of_budget|out_of_memory"}[5m]))` +
				"\n/ (" + `sum without (reason) (rate(gpumem_refusals_total{reason=~"out_of_budget|out_of_memory"}[5m])) + rate(gpumem_allocations_total[5m])) > 0.01`,
			Summary:     "Requests for memory are refused.",
			Description: "{{ $value | humanizePercentage }} of requests are refused for want of budget or of memory. The refusal says who holds it."},
		{Name: "FencepostQuarantinePressure", For: "5m", KeepFiring: "15m", Severity: Info, Board: "guard", Scene: "pressure",
			Expr:        `increase(gpumem_guard_events_total{event="relieved"}[15m]) > 0`,
			Summary:     "The guard gives up quarantine to serve requests.",
			Description: "Requests would have been refused had the guard not given freed memory up early. It sees late writes less well, and the budget is too tight for it."},
		{Name: "FencepostLedgerDrift", For: "10m", KeepFiring: "15m", Severity: Warning, Board: "overview", Scene: "drift",
			Expr:        `abs(` + lowest("gpumem_drift_bytes") + ` > 0 or ` + highest("gpumem_drift_bytes") + ` < 0)`,
			Summary:     "The pool and the ledger disagree.",
			Description: "They differ by {{ $value | humanize1024 }}B. Memory of the runtime's pool was allocated or freed around the runtime, or its books are wrong."},
		{Name: "FencepostForeignMemory", For: "10m", KeepFiring: "15m", Severity: Warning, Board: "overview", Scene: "foreign",
			Expr:        lowest("gpumem_budget_limit_bytes") + ` + ` + lowest("gpumem_device_foreign_bytes") + ` > ` + highest("gpumem_device_total_bytes"),
			Summary:     "The budget promises memory that the device does not have.",
			Description: "With what others hold it is {{ $value | humanize1024 }}B. Other processes or libraries hold so much of the device that the budget cannot be met: allocations will fail in the driver instead of being refused with a reason."},
		{Name: "FencepostFreesStuck", For: "10m", KeepFiring: "15m", Severity: Warning, Board: "streams", Scene: "stuck",
			Expr: lowest(`gpumem_memory_bytes{state="pending"}`) + ` > 0` +
				"\nand ignoring(state) increase(gpumem_free_to_reusable_seconds_count[5m]) == 0",
			Summary:     "Memory is freed and never becomes reusable.",
			Description: "{{ $value | humanize1024 }}B are pending. Frees are queued and the device has passed none of them for minutes: a kernel hangs, or a stream waits for something that does not come."},
		{Name: "FencepostStreamsExhausted", For: "2m", KeepFiring: "5m", Severity: Warning, Board: "streams", Scene: "exhaust",
			Expr:        lowest("gpumem_streams_waiting") + ` > 0`,
			Summary:     "Callers wait for a stream.",
			Description: "Every stream is leased, and {{ $value }} callers have been waiting for minutes."},
		{Name: "FencepostReadingsOld", For: "5m", KeepFiring: "15m", Severity: Warning, Board: "overview", Scene: "deaf",
			// One sample, as after a gap, does not change either.
			Expr: `changes(gpumem_device_read_timestamp_seconds[5m]) == 0` +
				"\nand count_over_time(gpumem_device_read_timestamp_seconds[5m]) > 2" +
				"\nunless on (job, instance, device) gpumem_device_lost == 1", // which says enough
			Summary:     "The device has not been read for minutes.",
			Description: "The runtime cannot ask the driver for the device's memory: it does not answer, or fails. What dashboards show of the device is old."},
		{Name: "FencepostSpansLost", For: "10m", KeepFiring: "15m", Severity: Warning, Board: "guard", Process: true, Scene: "failspans",
			Expr:        `increase(gpumem_spans_dropped_total[10m]) + increase(gpumem_spans_failed_total[10m]) > 0`,
			Summary:     "Spans are lost, and traces have holes.",
			Description: "{{ $value | humanize }} spans in ten minutes: the exporter refused them, or its queue was full. Traces have holes."},
		{Name: "FencepostLogRecordsLost", KeepFiring: "15m", Severity: Warning, Board: "guard", Scene: "droplog",
			Expr:        `increase(gpumem_log_records_dropped_total[15m]) > 0`,
			Summary:     "Log records are lost.",
			Description: "{{ $value | humanize }} in a quarter of an hour. A sink of the log did not keep up or failed to write."},
		{Name: "FencepostIncidentsLost", KeepFiring: "15m", Severity: Warning, Board: "guard", Scene: "badfolder",
			Expr:        `increase(gpumem_incidents_total{outcome=~"dropped|failed"}[1h]) > 0`,
			Summary:     "Incident files are not written.",
			Description: "The outcome is {{ $labels.outcome }}: a memory bug was found, and its file could not be written. The log has its text; the stacks are lost."},
	}
}

// corrupting are the kinds after which bytes may be wrong, those of
// findings.StopKinds.
const corrupting = "uaf-write|uaf-read|oob-write|oob-read|underflow|sealed-write|stray-write|missing-fence|reuse-race|use-before-alloc-ready|undeclared-access"

// findings are those of processes that run, or ended in the last six hours. A
// finding is final: neither the end of its process nor its age makes the memory
// right. Tags are summed, because the first finding of a tag is a series that
// begins at 1.
func findings(kinds string) string {
	return `sum without (tag) (max_over_time(gpumem_findings_total{` + kinds + `}[6h])) > 0`
}

// bridge is the time over which a gauge is looked at that must hold for a
// while: at a scrape a minute it survives two that are missed, which would
// begin the alert's "for" anew.
const bridge = "[5m]"

// lowest and highest are what a gauge was at least and at most.
func lowest(gauge string) string  { return `min_over_time(` + gauge + bridge + `)` }
func highest(gauge string) string { return `max_over_time(` + gauge + bridge + `)` }

// reasons lists why the runtime of an alert is not well, in the order of the alphabet: a query's answer has none, and an
// annotation that changes from one evaluation to the next is a new text to the operator who is paged.
const reasons = `{{ with printf "max by (reason) (max_over_time(gpumem_health_reasons{job=%q, instance=%q, device=%q}[5m])) == 1"` +
	` $labels.job $labels.instance $labels.device | query | sortByLabel "reason" }}: {{ range $i, $r := . }}{{ if $i }}, {{ end }}{{ $r.Labels.reason }}{{ end }}{{ end }}`

// liveBytes are those that are allocated, in all, and least what a tag had at least in a quarter of an hour.
const liveBytes = `gpumem_memory_bytes{state="live"}`

func least(offset string) string {
	return `min_over_time(gpumem_tag_bytes{state="live"}[15m]` + offset + `)`
}
