package telemetry

import (
	"encoding/hex"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// bothHistograms is a histogram with classic and with native buckets, which
// client_golang makes of its own histograms and not of constant ones.
type bothHistograms struct{ classic, native prometheus.Metric }

// Desc is that of either.
func (m bothHistograms) Desc() *prometheus.Desc { return m.native.Desc() }

// Write writes the native histogram with the buckets of the classic one.
func (m bothHistograms) Write(out *dto.Metric) error {
	var classic dto.Metric
	if err := m.classic.Write(&classic); err != nil {
		return err
	}
	if err := m.native.Write(out); err != nil {
		return err
	}
	out.Histogram.Bucket = classic.GetHistogram().GetBucket()
	return nil
}

// sendLatency sends the durations of one operation. An exemplar names the
// trace and the span of a call.
func (e emitter) sendLatency(name MetricName, l *latency, since time.Time, op string) {
	classic, native, short := l.buckets()
	desc, sum := e.metrics[name].desc, float64(l.nanoseconds)/1e9
	var m prometheus.Metric = bothHistograms{
		prometheus.MustNewConstHistogram(desc, l.calls, sum, classic, op),
		prometheus.MustNewConstNativeHistogram(desc, l.calls, sum, native, nil, short, nativeSchema, zeroThreshold, since, op),
	}
	if len(l.exemplars) > 0 {
		m = prometheus.MustNewMetricWithExemplars(m, forPrometheus(l.exemplars)...)
	}
	e.ch <- m
}

// zeroThreshold is the longest duration of the zero bucket, in seconds.
var zeroThreshold = math.Exp2(lowestKey / perOctave)

// buckets sums the cells up: to the classic buckets, each with those below it,
// the native ones, and the zero bucket.
func (l *latency) buckets() (classic map[float64]uint64, native map[int]int64, short uint64) {
	classic, native = make(map[float64]uint64, len(latencyBounds)), map[int]int64{}
	var counts [classicBounds + 1]uint64
	for i, n := range l.cells {
		counts[grid.classic[i]] += n
		switch key := grid.native[i]; {
		case key == lowestKey:
			short += n
		case n > 0:
			native[key] += int64(n)
		}
	}
	below := uint64(0)
	for i, bound := range latencyBounds {
		below += counts[i]
		classic[bound.Seconds()] = below
	}
	return classic, native, short
}

func forPrometheus(kept []exemplar) []prometheus.Exemplar {
	all := make([]prometheus.Exemplar, len(kept))
	for i, x := range kept {
		all[i] = x.forPrometheus(x.took.Seconds())
	}
	return all
}

func (x *exemplar) forPrometheus(value float64) prometheus.Exemplar {
	return prometheus.Exemplar{Value: value, Timestamp: x.at, Labels: prometheus.Labels{
		"trace_id": hex.EncodeToString(x.span.TraceID[:]), "span_id": hex.EncodeToString(x.span.SpanID[:])}}
}

// sendFailures sends a count of failed calls, with the newest of them that has a
// span, if any.
func (e emitter) sendFailures(name MetricName, n uint64, newest *exemplar, labels ...string) {
	m := prometheus.MustNewConstMetric(e.metrics[name].desc, counter, float64(n), labels...)
	if newest != nil {
		m = prometheus.MustNewMetricWithExemplars(m, newest.forPrometheus(1))
	}
	e.ch <- m
}
