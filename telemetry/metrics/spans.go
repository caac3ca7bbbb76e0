package metrics

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
	return c.Ended - min(c.Ended, c.Exported+c.Failed+c.Dropped)
}

var spanMetrics = []family[SpanCounts]{
	{counter("gpumem_spans_started_total", "Sampled spans started."), whole(func(c SpanCounts) uint64 { return c.Started })},
	{counter("gpumem_spans_ended_total", "Sampled spans ended."), whole(func(c SpanCounts) uint64 { return c.Ended })},
	{counter("gpumem_spans_exported_total", "Spans that the exporter accepted."), whole(func(c SpanCounts) uint64 { return c.Exported })},
	{counter("gpumem_spans_failed_total", "Spans that the exporter refused."), whole(func(c SpanCounts) uint64 { return c.Failed })},
	{counter("gpumem_spans_dropped_total", "Spans that never reached the exporter, because its queue was full."), whole(func(c SpanCounts) uint64 { return c.Dropped })},
	{gauge("gpumem_spans_unexported", "Spans that are queued or being exported."), whole(SpanCounts.Unexported)},
}

// NewSpanCollector returns a collector of the process's spans, which belong to no
// device. counts is called once a scrape and must be safe for concurrent use.
func NewSpanCollector(counts func() SpanCounts) *Collector {
	c := &Collector{}
	c.add(nil, read(counts, spanMetrics...))
	return c
}
