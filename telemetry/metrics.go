package telemetry

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// definition is one metric as it is declared, once.
type definition struct {
	name   MetricName
	kind   prometheus.ValueType
	help   string
	labels []string
}

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
