package boards

func overviewOutlook() Row {
	return Row{Title: "Will it run out?", Panels: []Panel{
		{
			Title: "Fullness of the devices and budgets", Kind: TimeSeries, Unit: Share, Width: 12,
			Shows: "How much of each device is in use by whomever, and how much of each budget is charged for, which lending takes above 1.",
			Bad:   "A line that climbs and does not come back: see the time to full above. The device is fuller than the budget: others hold it.",
			Do:    "See which tag grows. If it is not ours, see the whole device below.",
			Queries: []Query{
				{Expr: `max by (instance, device) (1 - gpumem_device_free_bytes{@} / gpumem_device_total_bytes{@})`, Legend: "{{instance}} {{device}}: device", Proof: moves("foreign", 0.2)},
				{Expr: `max by (instance, device) (gpumem_budget_charged_bytes{@} / (gpumem_budget_limit_bytes{@} > 0))`, Legend: "{{instance}} {{device}}: budget", Proof: moves("hold", 0.2)},
			},
		},
		{
			Title: "GPUs", Kind: Table, Unit: Bytes, Width: 12, Link: "overview#The whole device",
			Shows: "Each GPU once, however many processes and containers use it: which it is, its memory, what is in use by whomever, and what the runtimes on it hold together.",
			Bad:   "In use is far more than the runtimes hold: others have the rest.",
			Do:    "See the whole device below; nvidia-smi lists its processes.",
			Columns: []Column{{Label: "device_name", Heading: "GPU"}, {Label: "pci_bus_id", Heading: "PCI bus"}, {Label: "uuid", Heading: "UUID"},
				{Label: "Value #A", Heading: "memory"}, {Label: "Value #B", Heading: "in use"}, {Label: "Value #C", Heading: "of runtimes"}},
			Queries: []Query{
				{Expr: identified("max", `gpumem_device_total_bytes{@}`), Proof: stays("foreign", 256*mib)},
				{Expr: identified("max", `(gpumem_device_total_bytes{@} - gpumem_device_free_bytes{@})`), Proof: moves("foreign", 60*mib)},
				{Expr: identified("sum", `gpumem_device_held_bytes{@}`), Proof: moves("hold", 60*mib)},
			},
		},
		{
			Title: "Utilisation of the GPUs", Kind: TimeSeries, Unit: Percent, Width: 8, None: "no dcgm-exporter",
			Shows:   "The share of the time in which a kernel ran on the GPUs of these runtimes, from dcgm-exporter.",
			Bad:     "Low while requests wait: the service waits for memory, streams or the host.",
			Do:      "Compare with refusals and with the waits for streams.",
			Queries: []Query{{Expr: ofOurs("DCGM_FI_DEV_GPU_UTIL"), Legend: "{{UUID}}", Proof: moves("work", 20)}},
		},
		{
			Title: "Temperature of the GPUs", Kind: TimeSeries, Unit: Celsius, Width: 8, None: "no dcgm-exporter",
			Shows:   "Of the GPUs of these runtimes, from dcgm-exporter.",
			Bad:     "Close to the limit of the device, which then slows down.",
			Do:      "See to its cooling.",
			Queries: []Query{{Expr: ofOurs("DCGM_FI_DEV_GPU_TEMP"), Legend: "{{UUID}}", Proof: moves("work", 20)}},
		},
		{
			Title: "Power of the GPUs", Kind: TimeSeries, Unit: Watts, Width: 8, None: "no dcgm-exporter",
			Shows:   "Of the GPUs of these runtimes, from dcgm-exporter.",
			Bad:     "At its limit the device slows down.",
			Do:      "Compare with the utilisation.",
			Queries: []Query{{Expr: ofOurs("DCGM_FI_DEV_POWER_USAGE"), Legend: "{{UUID}}", Proof: moves("work", 20)}},
		},
	}}
}

// A device is a number of its process. What is said of GPUs is joined with
// their identity, which all processes on one agree on: of what each process
// says of the whole GPU the highest counts, of what it holds itself the sum.
const (
	ofDevice    = ` * on (job, instance, device) group_left (uuid) gpumem_device_info{@})`
	deviceTotal = `max by (uuid) (gpumem_device_total_bytes{@}` + ofDevice
	deviceFree  = `max by (uuid) (gpumem_device_free_bytes{@}` + ofDevice
	deviceHeld  = `sum by (uuid) (gpumem_device_held_bytes{@}` + ofDevice
)

// identified is by GPU, with all that says which it is. The host is not part of
// that: two containers on one GPU have names of their own.
func identified(how, series string) string {
	const identity = `device_name, pci_bus_id, uuid`
	return how + ` by (` + identity + `) (` + series + ` * on (job, instance, device) group_left (` + identity + `) gpumem_device_info{@})`
}

// ofOurs is a metric of dcgm-exporter, which calls UUID what we call uuid, of
// the GPUs that the chosen runtimes use.
func ofOurs(metric string) string {
	return `max by (UUID) (` + metric + ` and on (UUID) label_replace(gpumem_device_info{@}, "UUID", "$1", "uuid", "(.*)"))`
}

// overviewService is what the service's own metrics say: those of
// OpenTelemetry's conventions for HTTP, or else those of the example.
func overviewService() Row {
	return Row{Title: "The service", Panels: []Panel{
		{
			Title: "Requests", Kind: TimeSeries, Unit: OpsASecond, Width: 12, None: "no metrics of requests",
			Shows:   "Requests a second of the service, by http.server.request.duration of OpenTelemetry or service_request_duration_seconds of the example.",
			Bad:     "It falls while memory is full: requests are refused or wait.",
			Do:      "Compare with refusals, and with the memory above.",
			Queries: []Query{{Expr: eitherOf(`sum by (job, instance) (rate(`, `_count{@process}[$__rate_interval]))`), Legend: "{{instance}}", Proof: moves("work", 10)}},
		},
		{
			Title: "Duration of requests", Kind: TimeSeries, Unit: Seconds, Width: 12, Log: true, None: "no metrics of requests",
			Shows:   "The 99th percentile by instance. A point is a request that was traced; it leads to its trace.",
			Bad:     "It rises while memory is full, or while callers wait for streams.",
			Do:      "Open a slow point's trace.",
			Queries: []Query{{Expr: eitherOf(`histogram_quantile(0.99, sum by (job, instance, le) (rate(`, `_bucket{@process}[$__rate_interval]))) >= 0`), Legend: "{{instance}}, 99 %", Exemplars: true, Proof: moves("work", 0.01)}},
		},
	}}
}

// eitherOf asks for the conventional metric of requests, or else the example's.
func eitherOf(begin, end string) string {
	return begin + "http_server_request_duration_seconds" + end + " or " + begin + "service_request_duration_seconds" + end
}
