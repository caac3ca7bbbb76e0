package telemetry

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost/core"
)

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
	// histogram is no kind of a single value; see [emitter.sendDurations].
	histogram prometheus.ValueType = 0
)

// definition is one metric as it is declared, once.
type definition struct {
	name   MetricName
	kind   prometheus.ValueType
	help   string
	labels []string
	// note is what a document says besides.
	note string
}

var typeNames = map[prometheus.ValueType]string{counter: "counter", gauge: "gauge", histogram: "histogram"}

// described are definitions made ready for one source.
type described map[MetricName]describedMetric

type describedMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func describe(definitions []definition, constant prometheus.Labels) described {
	d := make(described, len(definitions))
	for _, def := range definitions {
		d[def.name] = describedMetric{
			desc: prometheus.NewDesc(string(def.name), def.help, def.labels, constant),
			kind: def.kind,
		}
	}
	return d
}

func (d described) sendDescs(ch chan<- *prometheus.Desc) {
	for _, m := range d {
		ch <- m.desc
	}
}

// emitter sends the samples of one scrape.
type emitter struct {
	metrics described
	ch      chan<- prometheus.Metric
}

func (e emitter) send(name MetricName, value uint64, labels ...string) {
	e.sendFloat(name, float64(value), labels...)
}

// sendFloat sends one sample. Tags and kinds come from callers, and one label
// that is not UTF-8 would fail the whole scrape.
func (e emitter) sendFloat(name MetricName, value float64, labels ...string) {
	for i, label := range labels {
		labels[i] = strings.ToValidUTF8(label, "\uFFFD")
	}
	m := e.metrics[name]
	e.ch <- prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...)
}

// sendTime sends an instant as Prometheus counts time, in seconds since 1970.
func (e emitter) sendTime(name MetricName, at time.Time) {
	e.sendFloat(name, float64(at.UnixMilli())/1e3)
}

// bucketBounds are those of [core.Durations] in seconds.
var bucketBounds = func() (seconds []float64) {
	for _, bound := range core.DurationBounds() {
		seconds = append(seconds, bound.Seconds())
	}
	return seconds
}()

// sendDurations sends a histogram in seconds.
func (e emitter) sendDurations(name MetricName, h *core.Durations) {
	atMost, below := make(map[float64]uint64, len(bucketBounds)), uint64(0)
	for i, bound := range bucketBounds {
		below += h.Buckets[i]
		atMost[bound] = below
	}
	e.ch <- prometheus.MustNewConstHistogram(e.metrics[name].desc, h.Count(), h.Nanoseconds/1e9, atMost)
}
