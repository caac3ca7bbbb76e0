package telemetry

import "github.com/prometheus/client_golang/prometheus"

// SpanCounts is what became of the sampled spans of a process. Package
// spanpipe takes it.
type SpanCounts struct {
	// Started and Ended count spans at the provider.
	Started, Ended uint64
	// Exported were accepted by the exporter, Failed refused by it.
	Exported, Failed uint64
	// Dropped never reached the exporter, because the queue was full or had
	// ended.
	Dropped uint64
}

// Unexported is the number of spans that are queued or being exported.
func (c SpanCounts) Unexported() uint64 {
	known := c.Exported + c.Failed + c.Dropped
	if known > c.Ended {
		return 0
	}
	return c.Ended - known
}

var spanMetrics = []definition{
	{name: MetricSpansStarted, kind: counter, help: "Sampled spans started."},
	{name: MetricSpansEnded, kind: counter, help: "Sampled spans ended."},
	{name: MetricSpansExported, kind: counter, help: "Spans that the exporter accepted."},
	{name: MetricSpansFailed, kind: counter, help: "Spans that the exporter refused."},
	{name: MetricSpansDropped, kind: counter, help: "Spans that never reached the exporter, because its queue was full."},
	{name: MetricSpansUnexported, kind: gauge, help: "Spans that are queued or being exported."},
}

// spanCollector exports span counts, which belong to the process and not to
// a device.
type spanCollector struct {
	read    func() SpanCounts
	metrics described
}

// NewSpanCollector returns a collector of the process's spans. read is called
// once a scrape and must be safe for concurrent use.
func NewSpanCollector(read func() SpanCounts) prometheus.Collector {
	return &spanCollector{read: read, metrics: describe(spanMetrics, nil)}
}

// Describe sends the descriptions, which are fixed.
func (c *spanCollector) Describe(ch chan<- *prometheus.Desc) { c.metrics.sendDescs(ch) }

// Collect reads the counts once.
func (c *spanCollector) Collect(ch chan<- prometheus.Metric) {
	counts := c.read()
	out := emitter{c.metrics, ch}
	out.send(MetricSpansStarted, counts.Started)
	out.send(MetricSpansEnded, counts.Ended)
	out.send(MetricSpansExported, counts.Exported)
	out.send(MetricSpansFailed, counts.Failed)
	out.send(MetricSpansDropped, counts.Dropped)
	out.send(MetricSpansUnexported, counts.Unexported())
}
