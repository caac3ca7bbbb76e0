package compose

import (
	"os"
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
				Tags               []struct{ Key, Value string }
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
	links, queries, filtered := 0, 0, 0
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
		var labels []string
		for _, tag := range d.JSONData.TracesToMetrics.Tags {
			labels = append(labels, tag.Value)
			wantAttribute(t, tag.Key)
		}
		for _, q := range d.JSONData.TracesToMetrics.Queries {
			queries++
			query := provisioned(q.Query)
			wantMetrics(t, query)
			if filter := "{$__tags}"; strings.Contains(query, filter) {
				filtered++
				wantLabels(t, query[:strings.Index(query, filter)], labels)
			}
		}
	}
	if links != 1 || queries != 5 || filtered != 3 || file.APIVersion != 1 {
		t.Errorf("%d links and %d queries, of which %d are filtered by the span", links, queries, filtered)
	}
}

// provisioned is a value of a provisioning file as Grafana takes it: variables are
// those of its environment, which has none of ours, and two $ are one.
func provisioned(value string) string {
	return os.Expand(value, func(name string) string {
		if name == "$" {
			return name
		}
		return ""
	})
}

// wantAttribute demands that spans have an attribute.
func wantAttribute(t *testing.T, key string) {
	t.Helper()
	if !strings.Contains(read(t, "docs/metrics.md"), "- `"+key+"` (") {
		t.Errorf("no span has %s", key)
	}
}

// wantLabels demands of the metric that a query ends with, as far as it goes, all
// of the labels: a span's tag that is no label of it would leave nothing.
func wantLabels(t *testing.T, query string, labels []string) {
	t.Helper()
	names := metric.FindAllString(query, -1)
	if len(names) == 0 {
		t.Fatalf("nothing is filtered in %s", query)
	}
	name := names[len(names)-1]
	for line := range strings.Lines(read(t, "docs/metrics.md")) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || strings.Trim(cells[1], " `") != name {
			continue
		}
		for _, label := range labels {
			if label != "device" && !strings.Contains(cells[2], "`"+label+"`") {
				t.Errorf("%s is a %s, without %s", name, cells[2], label)
			}
		}
		return
	}
	t.Errorf("docs/metrics.md lacks %s", name)
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
	home := mustLoad(t, composeFile).Services["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if home == nil || mounts[path.Dir(*home)] != "dashboards" || !strings.Contains(read(t, "dashboards/"+path.Base(*home)), `"uid": "fencepost-overview"`) {
		t.Errorf("the first page is %v, not the overview", home)
	}
	if len(file.Providers) != 1 || mounts[file.Providers[0].Options.Path] != "dashboards" || mounts["/etc/grafana/provisioning"] != "provisioning" {
		t.Errorf("%+v in %v", file.Providers, mounts)
	}
}
