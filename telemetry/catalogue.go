package telemetry

import (
	"slices"
	"strings"
)

// MetricInfo describes a metric, for documents and for who checks queries.
type MetricInfo struct {
	Name MetricName
	// Type is "gauge", "counter" or "histogram".
	Type string
	// Labels are in alphabetical order.
	Labels []string
	// Unit is "bytes" or "seconds", empty for a plain number.
	Unit string
	// Help is what the metric is exported with, Note what a document says
	// besides.
	Help, Note string
}

// Catalogue lists every metric that this package can export, in groups. The
// slice is the caller's.
func Catalogue() []MetricInfo {
	var all []MetricInfo
	for _, group := range deviceGroups {
		all = append(all, infos(group, LabelDevice)...)
	}
	return append(all, infos(spanMetrics)...)
}

// deviceGroups are the metrics that have the label of a device.
var deviceGroups = [][]definition{
	statMetrics, windowMetrics, deviceMetrics, infoMetrics, holderMetrics, operationMetrics, streamMetrics, findingMetrics, guardMetrics, incidentMetrics, dumpMetrics,
	historyMetrics, logMetrics, recorderMetrics, healthMetrics, stickyMetrics, buildMetrics, startMetrics,
}

func infos(definitions []definition, constant ...string) (all []MetricInfo) {
	for _, d := range definitions {
		labels := append(slices.Clone(constant), d.labels...)
		slices.Sort(labels)
		all = append(all, MetricInfo{Name: d.name, Type: typeNames[d.kind], Labels: labels, Unit: unitOf(d.name), Help: d.help, Note: d.note})
	}
	return all
}

// unitOf goes by the end of the name, as Prometheus demands.
func unitOf(name MetricName) string {
	base := strings.TrimSuffix(string(name), "_total")
	for _, unit := range []string{"bytes", "seconds"} {
		if strings.HasSuffix(base, "_"+unit) {
			return unit
		}
	}
	return ""
}
