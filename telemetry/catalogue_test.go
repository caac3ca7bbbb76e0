package telemetry_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost/telemetry"
)

// The catalogue is the names that exist, each once.
func TestTheCatalogueHasEveryName(t *testing.T) {
	source, err := os.ReadFile("names.go")
	check(t, err)
	var listed []string
	for _, m := range telemetry.Catalogue() {
		if slices.Contains(listed, string(m.Name)) {
			t.Errorf("%s is in it twice", m.Name)
		}
		listed = append(listed, string(m.Name))
	}
	declared := regexp.MustCompile(`MetricName += "(\w+)"`).FindAllSubmatch(source, -1)
	if len(declared) != len(listed) {
		t.Errorf("%d names are declared, %d listed", len(declared), len(listed))
	}
	for _, m := range declared {
		if !slices.Contains(listed, string(m[1])) {
			t.Errorf("%s is not in it", m[1])
		}
	}
}

// What the catalogue says is what a scrape shows.
func TestTheCatalogueIsWhatIsExported(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	source := fullSource(t, &device{stats: distinct()})
	source.Build = telemetry.BuildInfo{Version: "v1"}
	registry.MustRegister(must[*telemetry.Collector](t)(telemetry.NewCollector(source)),
		telemetry.NewSpanCollector(func() telemetry.SpanCounts { return telemetry.SpanCounts{} }))
	families, err := registry.Gather()
	check(t, err)
	exported := map[string]telemetry.MetricInfo{}
	for _, f := range families {
		info := telemetry.MetricInfo{Type: map[string]string{"GAUGE": "gauge", "COUNTER": "counter", "HISTOGRAM": "histogram"}[f.GetType().String()], Help: f.GetHelp()}
		for _, l := range f.GetMetric()[0].GetLabel() {
			info.Labels = append(info.Labels, l.GetName())
		}
		exported[f.GetName()] = info
	}
	for _, m := range telemetry.Catalogue() {
		got, there := exported[string(m.Name)]
		if !there || got.Type != m.Type || got.Help != m.Help || !slices.Equal(got.Labels, m.Labels) {
			t.Errorf("%s: exported (%v) as %+v, the catalogue says %+v", m.Name, there, got, m)
		}
		delete(exported, string(m.Name))
	}
	if len(exported) > 0 {
		t.Errorf("not in the catalogue: %v", exported)
	}
}
