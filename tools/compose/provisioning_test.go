package compose

import (
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"
)

// datasources is the form of Grafana's file, as far as ours uses it.
type datasources struct {
	APIVersion  int `yaml:"apiVersion"`
	Datasources []struct {
		Name, UID, Type, Access, URL string
		IsDefault                    bool `yaml:"isDefault"`
		Editable                     bool
		JSONData                     struct {
			HTTPMethod                  string `yaml:"httpMethod"`
			TimeInterval                string `yaml:"timeInterval"`
			ExemplarTraceIDDestinations []struct {
				Name          string
				DatasourceUID string `yaml:"datasourceUid"`
			} `yaml:"exemplarTraceIdDestinations"`
			TracesToMetrics struct {
				DatasourceUID      string `yaml:"datasourceUid"`
				SpanStartTimeShift string `yaml:"spanStartTimeShift"`
				SpanEndTimeShift   string `yaml:"spanEndTimeShift"`
				Queries            []struct{ Name, Query string }
			} `yaml:"tracesToMetrics"`
			NodeGraph struct{ Enabled bool } `yaml:"nodeGraph"`
		} `yaml:"jsonData"`
	}
}

const datasourcesFile = "dashboards/provisioning/datasources/fencepost.yaml"

// An exemplar leads to its trace, and a span to metrics that exist.
func TestTheDatasourcesAreLinked(t *testing.T) {
	var file datasources
	parse(t, datasourcesFile, &file)
	types := map[string]string{}
	for _, d := range file.Datasources {
		types[d.UID] = d.Type
	}
	links, queries := 0, 0
	for _, d := range file.Datasources {
		for _, e := range d.JSONData.ExemplarTraceIDDestinations {
			links++
			if types[e.DatasourceUID] != "tempo" || !strings.Contains(read(t, "examples/service/internal/web/metrics.go"), `"`+e.Name+`"`) {
				t.Errorf("exemplars of %s: %+v", d.UID, e)
			}
		}
		if d.Type == "tempo" && types[d.JSONData.TracesToMetrics.DatasourceUID] != "prometheus" {
			t.Errorf("%+v", d.JSONData.TracesToMetrics)
		}
		for _, q := range d.JSONData.TracesToMetrics.Queries {
			queries++
			wantMetrics(t, q.Query)
		}
	}
	if links != 1 || queries != 3 || file.APIVersion != 1 {
		t.Errorf("%d links and %d queries", links, queries)
	}
}

var metric = regexp.MustCompile(`\b(?:gpumem|service)_[a-z_]+`)

// wantMetrics demands that the metrics of a query are made by somebody.
func wantMetrics(t *testing.T, query string) {
	t.Helper()
	names := metric.FindAllString(query, -1)
	if len(names) == 0 {
		t.Errorf("no metric in %s", query)
	}
	for _, name := range names {
		base := strings.TrimSuffix(name, "_bucket")
		out, err := exec.CommandContext(t.Context(), "grep", "-rlF", "--include=*.go", `"`+base+`"`, root+"/telemetry", root+"/examples").CombinedOutput()
		if err != nil || len(out) == 0 {
			t.Errorf("nobody makes %s", base)
		}
	}
}

func TestTheDashboardsFolderIsTheOneThatIsMounted(t *testing.T) {
	var file struct {
		APIVersion int `yaml:"apiVersion"`
		Providers  []struct {
			Name, Folder, Type    string
			DisableDeletion       bool `yaml:"disableDeletion"`
			AllowUIUpdates        bool `yaml:"allowUiUpdates"`
			UpdateIntervalSeconds int  `yaml:"updateIntervalSeconds"`
			Options               struct{ Path string }
		}
	}
	parse(t, "dashboards/provisioning/dashboards/fencepost.yaml", &file)
	mounts := map[string]string{}
	for _, v := range mustLoad(t, composeFile).Services["grafana"].Volumes {
		mounts[v.Target] = path.Base(v.Source)
	}
	if len(file.Providers) != 1 || mounts[file.Providers[0].Options.Path] != "dashboards" || mounts["/etc/grafana/provisioning"] != "provisioning" {
		t.Errorf("%+v in %v", file.Providers, mounts)
	}
}
