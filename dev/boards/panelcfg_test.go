package boards_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/dev/boards"
)

// grafanaVersion is that of docker-compose.yml, whose types testdata has.
const grafanaVersion = "12.3.3"

func TestTheTypesAreOfTheGrafanaThatComposeRuns(t *testing.T) {
	if !strings.Contains(read(t, "docker-compose.yml"), "image: grafana/grafana:"+grafanaVersion+"\n") {
		t.Errorf("docker-compose.yml runs another Grafana than %s", grafanaVersion)
	}
}

// Grafana leaves out without a word what it does not know. So boards are checked
// against its own types, those of each panel's options among them.
func TestPanelsHaveTheOptionsThatGrafanaKnows(t *testing.T) {
	for _, b := range boards.Boards() {
		for _, wrong := range faultsOfBoard(t, read(t, "dashboards/"+b.File+".json")) {
			t.Errorf("%s: %s", b.File, wrong)
		}
	}
}

// A misspelt option, a value that there is not, and a number for a word.
func TestAMisspeltOptionIsSeen(t *testing.T) {
	files := map[string]string{}
	for _, b := range boards.Boards() {
		files[b.File] = read(t, "dashboards/"+b.File+".json")
	}
	for i, change := range [][3]string{
		{"overview", `"fillOpacity"`, `"fillOpactiy"`}, {"overview", `"displayMode": "table"`, `"displayMode": "tabel"`}, {"overview", `"graphMode"`, `"graphmode"`},
		{"overview", `"noValue"`, `"novalue"`}, {"overview", `"custom.axisPlacement"`, `"custom.axisPlace"`}, {"overview", `"calcs": [`, `"calc": [`},
		{"overview", `"mode": "normal"`, `"mode": "stacked"`}, {"overview", `"cellHeight": "sm"`, `"cellHeight": "small"`}, {"overview", `"showPoints": "never"`, `"showPoints": false`},
		{"overview", `"type": "color-text"`, `"type": "colour-text"`}, {"overview", `"targetBlank"`, `"targetBlanc"`}, {"overview", `"transformations"`, `"transformation"`},
		{"operations", `"type": "log"`, `"type": "logarithmic"`}, {"operations", `"yAxis"`, `"yaxis"`}, {"operations", `"scheme": "Spectral"`, `"scheme": 7`},
		{"guard", `"mergeValues": true`, `"mergeValue": true`}, {"guard", `"rowHeight": 0.9`, `"rowHeight": "0.9"`}, {"guard", `"mappings"`, `"mapping"`},
		{"overview", `"type": "timeseries"`, `"type": "graph"`},
	} {
		if testing.Short() && i%3 != 0 { // of each board some
			continue
		}
		broken := strings.Replace(files[change[0]], change[1], change[2], 1)
		if broken == files[change[0]] || len(faultsOfBoard(t, broken)) == 0 {
			t.Errorf("%s: %s for %s is not seen", change[0], change[2], change[1])
		}
	}
}

// faultsOfBoard is what Grafana would not understand.
func faultsOfBoard(t *testing.T, text string) (found []string) {
	t.Helper()
	var d map[string]any
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	plugins := map[string]schema{}
	panels, _ := d["panels"].([]any)
	for _, p := range panels {
		p, _ := p.(map[string]any)
		kind, _ := p["type"].(string)
		if kind == "row" {
			found = append(found, unlessKnown(t, plugins, "stat").faults("row", p, shape{name: "RowPanel"})...)
			continue
		}
		found = append(found, faultsOfPanel(unlessKnown(t, plugins, kind), p)...)
	}
	delete(d, "panels")
	delete(d, "annotations") // theirs have what the datasource asks for
	return sorted(append(found, unlessKnown(t, plugins, "stat").faults("dashboard", d, shape{name: "Dashboard"})...))
}

// unlessKnown reads the types of a plugin once.
func unlessKnown(t *testing.T, plugins map[string]schema, kind string) schema {
	t.Helper()
	file := strings.ReplaceAll(kind, "-", "")
	switch file {
	case "stat", "timeseries", "statetimeline", "table", "heatmap":
	default:
		return nil
	}
	if plugins[kind] == nil {
		plugins[kind] = readSchema(t, file)
	}
	return plugins[kind]
}

func faultsOfPanel(s schema, p map[string]any) (found []string) {
	at := fmt.Sprint(p["title"])
	if s == nil {
		return []string{fmt.Sprintf("%s: no panel is a %v", at, p["type"])}
	}
	found = append(found, s.faults(at, p, s["Panel"])...)
	found = append(found, s.faults(at+": options", p["options"], s["panel.Options"])...)
	config, _ := p["fieldConfig"].(map[string]any)
	defaults, _ := config["defaults"].(map[string]any)
	if custom, there := defaults["custom"]; there {
		found = append(found, s.faults(at+": custom", custom, s["panel.FieldConfig"])...)
	}
	overrides, _ := config["overrides"].([]any)
	for _, o := range overrides {
		o, _ := o.(map[string]any)
		properties, _ := o["properties"].([]any)
		for _, one := range properties {
			one, _ := one.(map[string]any)
			found = append(found, s.faultsOfProperty(at, fmt.Sprint(one["id"]), one["value"])...)
		}
	}
	return found
}

// faultsOfProperty is of an override: a field by its path.
func (s schema) faultsOfProperty(at, id string, value any) []string {
	is, name := s["FieldConfig"], id
	if custom, own := strings.CutPrefix(id, "custom."); own {
		is, name = s["panel.FieldConfig"], custom
	}
	member, known := s.members(is)[name]
	if !known {
		return []string{fmt.Sprintf("%s: an override of %q, which there is not", at, id)}
	}
	return s.faults(at+": "+id, value, member)
}
