package metrics

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost/core"
)

// declaration is a metric without its samples.
type declaration struct {
	name   string
	kind   prometheus.ValueType
	help   string
	labels []string
}

// histogramKind is no kind of a single value.
const histogramKind prometheus.ValueType = 0

var typeNames = map[prometheus.ValueType]string{prometheus.CounterValue: "counter", prometheus.GaugeValue: "gauge", histogramKind: "histogram"}

func counter(name, help string, labels ...string) declaration {
	return declaration{name: name, kind: prometheus.CounterValue, help: help, labels: labels}
}

func gauge(name, help string, labels ...string) declaration {
	return declaration{name: name, kind: prometheus.GaugeValue, help: help, labels: labels}
}

func histogram(name, help string, labels ...string) declaration {
	return declaration{name: name, kind: histogramKind, help: help, labels: labels}
}

// family is a metric, and how its samples are read off a snapshot.
type family[T any] struct {
	declaration
	samples func(snapshot T, out sender)
}

// whole is the samples of a metric that has one, a whole number.
func whole[T any](read func(T) uint64) func(T, sender) {
	return func(snapshot T, out sender) { out.count(read(snapshot)) }
}

// itself is the samples of a snapshot that is a number.
func itself(n uint64, out sender) { out.count(n) }

// group is metrics that are read off one snapshot. Collect is nil where a source
// does not have it; descs are in the order of the declarations.
type group struct {
	declarations []declaration
	collect      func(l look, descs []*prometheus.Desc, ch chan<- prometheus.Metric)
}

func read[T any](snapshot func() T, families ...family[T]) group {
	var g group
	for _, f := range families {
		g.declarations = append(g.declarations, f.declaration)
	}
	if snapshot != nil {
		g.collect = func(l look, descs []*prometheus.Desc, ch chan<- prometheus.Metric) {
			now := snapshot()
			for i, f := range families {
				f.samples(now, sender{descs[i], f.kind, ch, l})
			}
		}
	}
	return g
}

// known is v as a snapshot, nil of a v that says nothing.
func known[T comparable](v T) func() T {
	var nothing T
	if v == nothing {
		return nil
	}
	return func() T { return v }
}

// sender sends the samples of one metric in one scrape.
type sender struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	ch   chan<- prometheus.Metric
	look look
}

func (s sender) count(value uint64, labels ...string) { s.send(float64(value), labels...) }

// send sends one sample. Tags and kinds come from callers, and one label that is
// not UTF-8 would fail the whole scrape.
func (s sender) send(value float64, labels ...string) {
	for i, label := range labels {
		labels[i] = strings.ToValidUTF8(label, "\uFFFD")
	}
	s.ch <- s.single(value, labels...)
}

// oneOf sends a 1 for each value that holds and a 0 for the others, so that a
// panel and an alert see each before it is first true.
func oneOf(out sender, values []string, holds func(string) bool) {
	for _, v := range values {
		out.count(oneIf(holds(v)), v)
	}
}

func oneIf(is bool) uint64 {
	if is {
		return 1
	}
	return 0
}

// instant sends a time as Prometheus counts it, in seconds since 1970; one that is
// zero is left out.
func (s sender) instant(at time.Time) {
	if !at.IsZero() {
		s.send(float64(at.UnixMilli()) / 1e3)
	}
}

// durations sends a histogram in seconds.
func (s sender) durations(h *core.Durations) {
	atMost, below := map[float64]uint64{}, uint64(0)
	for i, bound := range (core.Durations{}).Bounds() {
		below += h.Buckets[i]
		atMost[bound.Seconds()] = below
	}
	s.ch <- prometheus.MustNewConstHistogram(s.desc, h.Count(), h.Nanoseconds/1e9, atMost)
}

// Info describes a metric, for documents and for those who check queries.
type Info struct {
	Name string
	// Type is "gauge", "counter" or "histogram".
	Type string
	// Labels are in alphabetical order.
	Labels []string
	// Help is what the metric is exported with.
	Help string
}

// Catalogue lists every metric that this package can export, in groups. The
// slice is the caller's.
func Catalogue() (all []Info) {
	for _, g := range (Source{}).groups() {
		for _, d := range g.declarations {
			all = append(all, newInfo(d, deviceLabel))
		}
	}
	for _, m := range spanMetrics {
		all = append(all, newInfo(m.declaration))
	}
	return all
}

func newInfo(d declaration, constant ...string) Info {
	labels := slices.Sorted(slices.Values(append(constant, d.labels...)))
	return Info{Name: d.name, Type: typeNames[d.kind], Labels: labels, Help: d.help}
}

// SpanCounts is what became of the sampled spans of a process. Package
// spanpipe takes it.
type SpanCounts struct {
	// Started and Ended count spans at the provider.
	Started, Ended uint64
	// Exported were accepted by the exporter, Failed refused by it.
	Exported, Failed uint64
	// Dropped were not exported, because the queue was full or had ended, or because its end was
	// cut short while they were queued.
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
	{counter("gpumem_spans_dropped_total",
		"Spans that were not exported, because the queue was full or had ended, or its end was cut short."), whole(func(c SpanCounts) uint64 { return c.Dropped })},
	{gauge("gpumem_spans_unexported", "Spans that are queued or being exported."), whole(SpanCounts.Unexported)},
}

// NewSpanCollector returns a collector of the process's spans, which belong to no
// device. counts is called once a scrape and must be safe for concurrent use.
func NewSpanCollector(counts func() SpanCounts) *Collector {
	c := &Collector{}
	c.add(time.Time{}, nil, read(counts, spanMetrics...))
	return c
}
