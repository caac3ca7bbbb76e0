package servers

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/config"
	_ "github.com/prometheus/prometheus/discovery/dns" // which the configuration names
)

const (
	// root is the repository's top.
	root           = "../.."
	prometheusFile = root + "/dashboards/compose/prometheus.yaml"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func loadPrometheus(file string) (*config.Config, error) {
	return config.LoadFile(file, false, slog.New(slog.DiscardHandler))
}

// The jobs that dashboards select by, and histograms of both kinds.
func TestPrometheusTakesItsConfiguration(t *testing.T) {
	c, err := loadPrometheus(prometheusFile)
	must(t, err)
	scrapes, err := c.GetScrapeConfigs()
	must(t, err)
	var jobs []string
	for _, s := range scrapes {
		jobs = append(jobs, s.JobName)
		if !s.ScrapeNativeHistogramsEnabled() || !s.AlwaysScrapeClassicHistogramsEnabled() {
			t.Errorf("%s: histograms of one kind only", s.JobName)
		}
	}
	if want := []string{"fencepost-service", "collector", "tempo", "prometheus"}; !slices.Equal(jobs, want) {
		t.Errorf("jobs %q, want %q", jobs, want)
	}
}

func TestABrokenPrometheusConfigurationIsSeen(t *testing.T) {
	text, err := os.ReadFile(prometheusFile)
	must(t, err)
	for name, broken := range map[string]string{
		"an unknown key": strings.Replace(string(text), "scrape_interval", "scrape_internal", 1),
		"a job twice":    strings.Replace(string(text), "job_name: tempo", "job_name: collector", 1),
		"a bad target":   strings.Replace(string(text), `"tempo:3200"`, `"http://tempo:3200/x"`, 1),
		"a bad pattern":  strings.Replace(string(text), "rules/*.yaml", "*/rules/a.yaml", 1),
	} {
		file := filepath.Join(t.TempDir(), "prometheus.yaml")
		must(t, os.WriteFile(file, []byte(broken), 0o600))
		if _, err := loadPrometheus(file); err == nil || broken == string(text) {
			t.Errorf("%s was taken", name)
		}
	}
}
