package boards_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/findings"
	"github.com/fencepost-gpu/fencepost/internal/repo/boards"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// root is the repository's top.
const root = "../../.."

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheFilesAreCurrent(t *testing.T) {
	files, err := boards.Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if read(t, name) != string(want) {
			t.Errorf("%s is old: go run ./internal/repo/boards/write", name)
		}
	}
	for _, pattern := range []string{"dashboards/*.json", "dashboards/rules/*.yaml"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		for _, f := range found {
			name, _ := filepath.Rel(root, f)
			if files[filepath.ToSlash(name)] == nil || err != nil {
				t.Errorf("%s is not generated, and is loaded all the same", name)
			}
		}
	}
}

// queries are all expressions, of boards as Grafana is given them.
func queries() (all []string) {
	for _, b := range boards.Boards() {
		for _, a := range b.Annotations {
			all = append(all, a.Query.Expand())
		}
		for _, p := range panels(b) {
			for _, q := range p.Queries {
				all = append(all, q.Expand())
			}
		}
	}
	for _, a := range boards.Alerts() {
		all = append(all, a.Expr)
	}
	return all
}

func panels(b boards.Board) (all []boards.Panel) {
	for _, row := range b.Rows {
		all = append(all, row.Panels...)
	}
	return all
}

// catalogue are the metrics that there are, by the names of their series: a
// histogram has several.
func catalogue() map[string]string {
	series := map[string]string{}
	for _, m := range metrics.Catalogue() {
		series[m.Name] = m.Name
		if m.Type == "histogram" {
			for _, end := range []string{"_bucket", "_sum", "_count"} {
				series[m.Name+end] = m.Name
			}
		}
	}
	return series
}

func TestEveryMetricIsShownOrLeftOutForAReason(t *testing.T) {
	series, shown := catalogue(), map[string]bool{}
	for _, q := range queries() {
		for _, name := range regexp.MustCompile(`\bgpumem_\w+`).FindAllString(q, -1) {
			if series[name] == "" {
				t.Errorf("nobody exports %s: %s", name, q)
			}
			shown[series[name]] = true
		}
	}
	unshown := boards.Unshown()
	for _, m := range metrics.Catalogue() {
		if shown[m.Name] == (unshown[m.Name] != "") {
			t.Errorf("%s: shown: %v, reason for not showing it: %q", m.Name, shown[m.Name], unshown[m.Name])
		}
		delete(unshown, m.Name)
	}
	for name := range unshown {
		t.Errorf("%s is left out and does not exist", name)
	}
}

func TestWhatAlertsCallCorruptIsWhatThePolicyStopsFor(t *testing.T) {
	var kinds []string
	for _, k := range findings.StopKinds() {
		kinds = append(kinds, string(k))
	}
	if rules := read(t, "dashboards/rules/fencepost.yaml"); !strings.Contains(rules, `kind=~"`+strings.Join(kinds, "|")+`"`) {
		t.Errorf("the kinds are %s", strings.Join(kinds, "|"))
	}
}

// Whoever is woken by an alert finds a section that says what to do.
func TestEveryAlertHasItsRunbook(t *testing.T) {
	doc := read(t, "docs/alerts.md")
	sections := map[string]string{}
	for _, s := range strings.Split(doc, "\n## ")[1:] {
		title, text, _ := strings.Cut(s, "\n")
		sections[title] = text
	}
	for _, a := range boards.Alerts() {
		for _, part := range []string{"**Meaning.** ", "**First look.** ", "**Next step.** "} {
			if !strings.Contains(sections[a.Name], part) {
				t.Errorf("docs/alerts.md: section %q lacks %q", a.Name, part)
			}
		}
		delete(sections, a.Name)
	}
	for title := range maps.Keys(sections) {
		if strings.HasPrefix(title, "Fencepost") {
			t.Errorf("docs/alerts.md: there is no alert %q", title)
		}
	}
}

func TestAlertsSayWhatTheyMean(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range boards.Alerts() {
		if seen[a.Name] || !strings.HasPrefix(a.Name, "Fencepost") || a.Summary == "" || !strings.HasSuffix(a.Description, ".") {
			t.Errorf("%+v", a)
		}
		if seen[a.Name] = true; a.Severity != boards.Critical && a.Severity != boards.Warning && a.Severity != boards.Info {
			t.Errorf("%s: severity %q", a.Name, a.Severity)
		}
	}
}

func TestPanelsSayWhatABadPictureMeansAndWhatToDo(t *testing.T) {
	for _, b := range boards.Boards() {
		titles := map[string]bool{}
		for _, p := range panels(b) {
			for _, text := range []string{p.Shows, p.Bad, p.Do} {
				if !strings.HasSuffix(text, ".") {
					t.Errorf("%s: %s: %q is no sentence", b.File, p.Title, text)
				}
			}
			if titles[p.Title] || p.Title == "" || len(p.Queries) == 0 {
				t.Errorf("%s: %q has no title of its own, or no query", b.File, p.Title)
			}
			titles[p.Title] = true
		}
	}
}

// TestTheJSONIsWhatGrafanasLinterAsksFor holds the rules of Grafana's
// dashboard-linter, which cannot be had as a module, on the files themselves.
// Those of PromQL are in tools/servers, which has its parser.
func TestTheJSONIsWhatGrafanasLinterAsksFor(t *testing.T) {
	uids := map[string]bool{}
	for _, b := range boards.Boards() {
		d := decode(t, read(t, "dashboards/"+b.File+".json"))
		if uids[d.UID] || d.UID == "" || d.Editable || d.SchemaVersion < 39 || d.SchemaVersion > 42 || d.Title == "" || d.Description == "" {
			t.Errorf("%s: %+v", b.File, d)
		}
		uids[d.UID] = true
		checkVariables(t, b.File, d)
		checkPanels(t, b.File, d)
	}
}

type file struct {
	UID, Title, Description string
	SchemaVersion           int
	Editable                bool
	Templating              struct{ List []variable }
	Panels                  []panel
}

type variable struct {
	Name, Label, Type, AllValue string
	Refresh                     int
	Multi                       bool
	Datasource                  struct{ UID string }
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Datasource               struct{ UID string }
	Targets                  []struct {
		RefID, Expr, LegendFormat string
		Instant, Range            bool
		Datasource                struct{ UID string }
	}
	FieldConfig struct {
		Defaults struct {
			Unit, NoValue string
			Min           *float64
			Links         []struct{ URL string }
			Custom        struct{ ScaleDistribution struct{ Type string } }
		}
	}
	Options struct {
		Legend struct {
			DisplayMode string
			Calcs       []string
		}
	}
}

func decode(t *testing.T, text string) (d file) {
	t.Helper()
	if err := json.NewDecoder(bytes.NewBufferString(text)).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

const (
	anyDatasource     = "${datasource}"
	onTimeRangeChange = 2
)

func checkVariables(t *testing.T, name string, d file) {
	t.Helper()
	var names []string
	for _, v := range d.Templating.List {
		if names = append(names, v.Name); v.Name == "datasource" {
			if v.Type != "datasource" || v.Label != "Datasource" {
				t.Errorf("%s: %+v", name, v)
			}
			continue
		}
		if v.Type != "query" || !strings.EqualFold(v.Label, v.Name) || v.AllValue != ".+" || !v.Multi || v.Refresh != onTimeRangeChange || v.Datasource.UID != anyDatasource {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if want := []string{"datasource", "job", "instance", "device"}; !slices.Equal(names, want) {
		t.Errorf("%s: variables %q, want %q", name, names, want)
	}
}

// units are those of Grafana that panels use.
var units = []string{boards.Bytes, boards.BytesASecond, boards.Seconds, boards.Count, boards.OpsASecond, boards.Share, boards.Percent, boards.Celsius, boards.Watts}

func checkPanels(t *testing.T, name string, d file) {
	t.Helper()
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" {
			t.Errorf("%s: %+v", name, p)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if taken[[2]int{x, y}] != "" || x >= 24 {
					t.Fatalf("%s: %q lies on %q, or beyond the edge", name, p.Title, taken[[2]int{x, y}])
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || p.Datasource.UID != anyDatasource || len(p.Targets) == 0 || !slices.Contains(units, p.FieldConfig.Defaults.Unit) {
			t.Errorf("%s: %+v", name, p)
		}
		for _, q := range p.Targets {
			if q.Datasource.UID != anyDatasource || q.Expr == "" || q.RefID == "" {
				t.Errorf("%s: %s: %+v", name, p.Title, q)
			}
		}
		for _, wrong := range p.unreadable() {
			t.Errorf("%s: %s: %s", name, p.Title, wrong)
		}
	}
}

// unreadable is what of a panel would need guessing: a legend that is PromQL,
// an axis whose scale depends on the data, a number that is not of now.
func (p panel) unreadable() (found []string) {
	defaults := p.FieldConfig.Defaults
	say := func(wrong bool, text string) {
		if wrong {
			found = append(found, text)
		}
	}
	say(defaults.NoValue == "", "nothing is said where there is no data")
	for _, q := range p.Targets {
		named := q.LegendFormat != "" && !strings.Contains(q.LegendFormat, "__auto")
		say(!named && p.Type != "table", "the legend is PromQL: "+q.Expr)
		of := p.Type == "stat" || p.Type == "table"
		say(q.Instant != of || q.Range == of, "asked for another time than it shows")
	}
	if p.Type == "timeseries" {
		legend := p.Options.Legend
		say(legend.DisplayMode != "table" || !slices.Equal(legend.Calcs, []string{"lastNotNull", "max", "mean"}), "no last, maximum and mean")
		say(defaults.Unit == boards.Seconds && strings.Contains(p.Targets[0].Expr, "histogram_quantile") && defaults.Custom.ScaleDistribution.Type != "log", "quantiles on a linear axis")
		goesBelow := slices.Contains([]string{"Growth by tag", "Drift of the ledger"}, p.Title)
		say(defaults.Min == nil && !goesBelow && defaults.Custom.ScaleDistribution.Type != "log", "the axis does not begin at zero")
	}
	return found
}

// Without this the test above could pass because nothing is looked at.
func TestAnUnreadablePanelIsSeen(t *testing.T) {
	good := read(t, "dashboards/operations.json")
	for _, change := range [][2]string{
		{`"legendFormat": "{{op}}"`, `"legendFormat": "__auto"`}, {`"legendFormat": "{{op}}"`, `"legendFormat": ""`}, {`"min": 0`, `"max": 0`},
		{`"noValue": "no allocations"`, `"noValue": ""`}, {`"displayMode": "table"`, `"displayMode": "list"`}, {`"type": "log"`, `"type": "linear"`}, {`"range": true`, `"range": false`},
	} {
		found := 0
		for _, p := range decode(t, strings.ReplaceAll(good, change[0], change[1])).Panels {
			if p.Type != "row" {
				found += len(p.unreadable())
			}
		}
		if found == 0 {
			t.Errorf("%s for %s is not seen", change[1], change[0])
		}
	}
}

// A click on a number leads somewhere: to a board that exists, and to a panel
// that it has, with the choice and the time range.
func TestLinksLeadToPanels(t *testing.T) {
	ids, links := map[string]bool{}, 0
	for _, b := range boards.Boards() {
		d := decode(t, read(t, "dashboards/"+b.File+".json"))
		ids["/d/"+d.UID] = true
		for _, p := range d.Panels {
			ids[fmt.Sprintf("/d/%s?viewPanel=%d", d.UID, p.ID)] = p.Type != "row"
		}
	}
	for _, b := range boards.Boards() {
		for _, p := range decode(t, read(t, "dashboards/"+b.File+".json")).Panels {
			for _, l := range p.FieldConfig.Defaults.Links {
				to, kept := strings.CutSuffix(l.URL, "${__url_time_range}&${__all_variables}")
				if !kept || !ids[strings.TrimRight(to, "?&")] {
					t.Errorf("%s: %s leads to %s", b.File, p.Title, l.URL)
				}
				links++
			}
			if p.Type == "stat" && len(p.FieldConfig.Defaults.Links) != 1 {
				t.Errorf("%s: a click on %s leads nowhere", b.File, p.Title)
			}
		}
	}
	if links < 10 {
		t.Errorf("%d links", links)
	}
}
