package metrics_test

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// What the catalogue says is what a scrape shows.
func TestTheCatalogueIsWhatIsExported(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	source := fullSource(&device{stats: distinct(t)})
	source.Build = metrics.BuildInfo{Version: "v1"}
	registry.MustRegister(must[*metrics.Collector](t)(metrics.NewCollector(source)),
		metrics.NewSpanCollector(func() metrics.SpanCounts { return metrics.SpanCounts{} }))
	families, err := registry.Gather()
	check(t, err)
	exported := map[string]metrics.Info{}
	for _, f := range families {
		info := metrics.Info{Type: map[string]string{"GAUGE": "gauge", "COUNTER": "counter", "HISTOGRAM": "histogram"}[f.GetType().String()], Help: f.GetHelp()}
		for _, l := range f.GetMetric()[0].GetLabel() {
			info.Labels = append(info.Labels, l.GetName())
		}
		exported[f.GetName()] = info
	}
	for _, m := range metrics.Catalogue() {
		got, there := exported[m.Name]
		if !there || got.Type != m.Type || got.Help != m.Help || !slices.Equal(got.Labels, m.Labels) {
			t.Errorf("%s: exported (%v) as %+v, the catalogue says %+v", m.Name, there, got, m)
		}
		delete(exported, m.Name)
	}
	if len(exported) > 0 {
		t.Errorf("not in the catalogue: %v", exported)
	}
}
