package metrics

import (
	"encoding/hex"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

var operationMetrics = []family[Operations]{
	{counter("gpumem_operations_total", "Calls by operation and result, as callers saw them; the result is ok or the reason of the error. Exemplars are of failed calls of which a span was exported.", "op", "result"), sendResults},
	{histogram("gpumem_operation_duration_seconds", "Time that callers waited for each call, refused and failed ones too: from the outermost layer, with guard, budget, the driver's calls and, in sampled traces, the spans; enqueued work is not waited for. Of the allocations and frees that are served at once, and of the prepares, finishes and aborts of launches, in no sampled trace one in 16 on a stream is timed and counts for the next; a launch's that failed or waited for a launch to end is timed in any case. Classic and native; exemplars are of calls of which a span was exported.", "op"), sendLatencies},
	{counter("gpumem_refusals_total", "Allocations and reservations that were refused, by the reason that callers were told. Exemplars are of those of which a span was exported.", "reason"), sendRefusals},
	{counter("gpumem_event_spans_dropped_total", "Refusals, failed calls and findings in traces that are not sampled of which no span was made, because there were more than 50 in a second."),
		whole(func(o Operations) uint64 { return o.spansDropped })},
}

// sendResults sends every success, zero or not, so that the first increase is seen
// as one; failures appear with their first.
func sendResults(o Operations, out sender) {
	for op := oplog.OpAllocate; int(op) < operations; op++ {
		out.count(o.Succeeded(op), op.String(), "ok")
		for _, reason := range Reasons() {
			if n := o.Failed(op, reason); n > 0 {
				out.failures(n, o.failures[op][reason], op.String(), reason.String())
			}
		}
	}
}

func sendLatencies(o Operations, out sender) {
	for op := oplog.OpAllocate; int(op) < operations; op++ {
		out.latency(o.latencyOf(op), o.since, op.String())
	}
}

func sendRefusals(o Operations, out sender) {
	for _, reason := range Reasons() {
		newest := newer(o.failures[oplog.OpAllocate][reason], o.failures[oplog.OpReserve][reason])
		out.failures(o.Refusals(reason), newest, reason.String())
	}
}

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

// latency sends the durations of what the label says. An exemplar names the trace and
// the span of one.
func (s sender) latency(l *latency, since time.Time, label string) {
	classic, native, short := l.buckets()
	var m prometheus.Metric = bothHistograms{
		prometheus.MustNewConstHistogram(s.desc, l.calls, float64(l.nanoseconds)/1e9, classic, label),
		prometheus.MustNewConstNativeHistogram(s.desc, l.calls, float64(l.nanoseconds)/1e9, native, nil, short, nativeSchema, zeroThreshold, since, label),
	}
	if len(l.exemplars) > 0 {
		var exemplars []prometheus.Exemplar
		for _, x := range l.exemplars {
			exemplars = append(exemplars, x.forPrometheus(x.took.Seconds()))
		}
		m = prometheus.MustNewMetricWithExemplars(m, exemplars...)
	}
	s.ch <- m
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

func (x *exemplar) forPrometheus(value float64) prometheus.Exemplar {
	return prometheus.Exemplar{Value: value, Timestamp: x.at, Labels: exemplarLabels(x.span)}
}

func exemplarLabels(span core.SpanRef) prometheus.Labels {
	return prometheus.Labels{"trace_id": hex.EncodeToString(span.TraceID[:]), "span_id": hex.EncodeToString(span.SpanID[:])}
}

// failures sends a count of failed calls, with the newest of them that has a span,
// if any.
func (s sender) failures(n uint64, newest *exemplar, labels ...string) {
	m := s.single(float64(n), labels...)
	if newest != nil {
		m = prometheus.MustNewMetricWithExemplars(m, newest.forPrometheus(1))
	}
	s.ch <- m
}
