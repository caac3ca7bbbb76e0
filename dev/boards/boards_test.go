package boards_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"

	"github.com/fencepost-gpu/fencepost/dev/boards"
	"github.com/fencepost-gpu/fencepost/internal/findings"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// root is the repository's top.
const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(root, filepath.FromSlash(name))))(t)
	return string(text)
}

func TestTheFilesAreCurrent(t *testing.T) {
	files, err := boards.Files()
	must.Do(t, err)
	for name, want := range files {
		if read(t, name) != string(want) {
			t.Errorf("%s is old: make generate", name)
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
		for _, p := range b.Panels {
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
				t.Errorf("no metric is called %s: %s", name, q)
			}
			shown[series[name]] = true
		}
	}
	unshown := boards.Unshown()
	for _, m := range metrics.Catalogue() {
		switch reason := unshown[m.Name]; {
		case !shown[m.Name] && reason == "":
			t.Errorf("%s: add a panel that shows it, or a line to Unshown that says why none does", m.Name)
		case shown[m.Name] && reason != "":
			t.Errorf("%s is shown, and Unshown says why it is not", m.Name)
		}
		delete(unshown, m.Name)
	}
	for name := range unshown {
		t.Errorf("Unshown has %s, which does not exist", name)
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

// An alert leads to a section that says what to do, and each section of an
// alert is of one that there is.
func TestEveryAlertHasItsRunbook(t *testing.T) {
	sections := map[string]string{}
	for _, s := range regexp.MustCompile(`(?m)^##+ `).Split(read(t, boards.OperatePage), -1)[1:] {
		title, text, _ := strings.Cut(s, "\n")
		sections[title] = text
	}
	for _, a := range boards.Alerts() {
		if first, is := strings.CutPrefix(strings.TrimSpace(sections[a.Name]), "**First.** "); !is || !regexp.MustCompile("(?s)^[^\n]*(`[^`]+`|\"[^\"]+\")").MatchString(first) {
			t.Errorf("%s: section %q does not begin with a command or a panel", boards.OperatePage, a.Name)
		}
		for _, part := range []string{"**Meaning.** ", "**First look.** ", "**Next step.** "} {
			if !strings.Contains(sections[a.Name], part) {
				t.Errorf("%s: section %q lacks %q", boards.OperatePage, a.Name, part)
			}
		}
		delete(sections, a.Name)
	}
	for title := range sections {
		if strings.HasPrefix(title, "Fencepost") {
			t.Errorf("%s: there is no alert %q", boards.OperatePage, title)
		}
	}
}

// A panel says what a bad picture means and what to do, and can be read without
// guessing: its series have names that are no PromQL, and quantiles, which span
// orders of magnitude, a logarithmic axis.
func TestPanelsCanBeRead(t *testing.T) {
	for _, b := range boards.Boards() {
		titles := map[string]bool{}
		for _, p := range b.Panels {
			if titles[p.Title] || p.Title == "" || p.Unit == "" || p.Width < 1 || p.Width > 24 || len(p.Queries) == 0 {
				t.Errorf("%s: %q lacks a title of its own, a unit, a width or a query", b.File, p.Title)
			}
			titles[p.Title] = true
			if p.Shows == "" || p.Bad == "" || p.Do == "" {
				t.Errorf("%s: %s: say what it shows, what is bad, and what to do then", b.File, p.Title)
			}
			for _, q := range p.Queries {
				if p.Kind != boards.Table && (q.Legend == "" || strings.Contains(q.Legend, "__auto")) {
					t.Errorf("%s: %s: the legend is PromQL: %s", b.File, p.Title, q.Expr)
				}
				if p.Kind == boards.TimeSeries && p.Unit == units.Seconds && strings.Contains(q.Expr, "histogram_quantile") && !p.Log {
					t.Errorf("%s: %s: quantiles on a linear axis", b.File, p.Title)
				}
			}
		}
	}
}

// panelsOf are those of a board's file, those of folded rows among them.
func panelsOf(t *testing.T, b boards.Board) (uid string, all []dashboard.Panel) {
	t.Helper()
	var d struct {
		UID    string
		Panels []dashboard.PanelOrRowPanel
	}
	must.Do(t, json.Unmarshal([]byte(read(t, "dashboards/"+b.File+".json")), &d))
	for _, p := range d.Panels {
		if p.Panel != nil {
			all = append(all, *p.Panel)
		} else {
			all = append(all, p.RowPanel.Panels...)
		}
	}
	return d.UID, all
}

// A click on a number leads somewhere: to a board that exists, and to a panel
// that it has, with the choice and the time range. A row of a table leads to the
// boards of its runtime.
func TestLinksLeadToPanels(t *testing.T) {
	targets := map[string]bool{"/d/${__data.fields.board}": true}
	for _, b := range boards.Boards() {
		uid, panels := panelsOf(t, b)
		if targets["/d/"+uid] {
			t.Errorf("two boards have the uid %s", uid)
		}
		targets["/d/"+uid] = true
		for _, p := range panels {
			targets[fmt.Sprintf("/d/%s?viewPanel=%d", uid, *p.Id)] = true
		}
	}
	links, rows := 0, 0
	for _, b := range boards.Boards() {
		_, panels := panelsOf(t, b)
		for _, p := range panels {
			own := p.FieldConfig.Defaults.Links
			for _, l := range own {
				to, kept := strings.CutSuffix(*l.Url, "${__url_time_range}&${__all_variables}")
				if !kept || !targets[strings.TrimRight(to, "?&")] || p.Type == "table" {
					t.Errorf("%s: %s leads to %s", b.File, *p.Title, *l.Url)
				}
				links++
			}
			if p.Type == "stat" && len(own) != 1 {
				t.Errorf("%s: a click on %s leads nowhere", b.File, *p.Title)
			}
			rows += rowLinks(t, p, targets)
		}
	}
	if links < 9 || rows < 20 {
		t.Errorf("%d links, and %d of rows", links, rows)
	}
}

// rowLinks counts the links of a table's columns that lead to boards. Each is
// of the runtime of its row, and what a link asks of a row is a column.
func rowLinks(t *testing.T, p dashboard.Panel, targets map[string]bool) (n int) {
	t.Helper()
	columns := map[string]bool{}
	for _, tr := range p.Transformations {
		if names, is := tr.Options.(map[string]any)["renameByName"].(map[string]any); is {
			for _, name := range names {
				columns[name.(string)] = true
			}
		}
	}
	for _, o := range p.FieldConfig.Overrides {
		for _, property := range o.Properties {
			if property.Id != "links" {
				continue
			}
			for _, l := range property.Value.([]any) {
				url := l.(map[string]any)["url"].(string)
				for _, m := range regexp.MustCompile(`__data\.fields\.(\w+)`).FindAllStringSubmatch(url, -1) {
					if !columns[m[1]] {
						t.Errorf("%s: %s asks for a column that there is not", *p.Title, url)
					}
				}
				if to, query, is := strings.Cut(url, "?"); is {
					n++
					if !targets[to] || !strings.Contains(query, "var-instance=${__data.fields.instance}") {
						t.Errorf("%s: a row leads to %s", *p.Title, url)
					}
				}
			}
		}
	}
	return n
}

// Of a state timeline every value has its word and colour, and no threshold has
// a say: Grafana would write their ranges, and draw neighbours of one colour as one.
func TestTimelinesSayWords(t *testing.T) {
	timelines := 0
	for _, b := range boards.Boards() {
		_, panels := panelsOf(t, b)
		for _, p := range panels {
			if p.Type != "state-timeline" {
				continue
			}
			timelines++
			d := p.FieldConfig.Defaults
			if d.Color == nil || d.Color.Mode != dashboard.FieldColorModeIdFixed || len(d.Mappings) != 1 || d.Mappings[0].ValueMap == nil {
				t.Errorf("%s: colours %+v, mappings %+v", *p.Title, d.Color, d.Mappings)
				continue
			}
			colours := map[string]bool{}
			for value, m := range d.Mappings[0].ValueMap.Options {
				if m.Text == nil || *m.Text == "" || m.Color == nil || colours[*m.Color] {
					t.Errorf("%s: %s has no text or no colour of its own", *p.Title, value)
				} else {
					colours[*m.Color] = true
				}
			}
		}
	}
	if timelines == 0 {
		t.Error("there is no timeline")
	}
}

// A hundred runtimes, tags or GPUs are no hundred lines.
func TestWhatThereIsManyOfIsDrawnInPart(t *testing.T) {
	many, bounded := regexp.MustCompile(`\{\{(job|instance|tag|uuid|UUID|op|kind)}}`), regexp.MustCompile(`\b(topk|bottomk)\(.*@ end\(\)`)
	drawn := 0
	for _, b := range boards.Boards() {
		for _, p := range b.Panels {
			for _, q := range p.Queries {
				if (p.Kind != boards.TimeSeries && p.Kind != boards.StateTimeline) || !many.MatchString(q.Legend) {
					continue
				}
				if drawn++; !bounded.MatchString(q.Expr) {
					t.Errorf("%s: %s draws all of them: %s", b.File, p.Title, q.Expr)
				}
			}
		}
	}
	if drawn < 20 {
		t.Errorf("%d queries draw what there are many of", drawn)
	}
}

// A unit of a whole table would be one of its labels, too: device "0" as 0 %.
// Columns have room, and a legend tells what is from what was.
func TestValuesCanBeReadForWhatTheyAre(t *testing.T) {
	for _, b := range boards.Boards() {
		_, panels := panelsOf(t, b)
		for _, p := range panels {
			if d := p.FieldConfig.Defaults; p.Type == "table" && d.Unit != nil {
				t.Errorf("%s: the unit %s is also that of labels", *p.Title, *d.Unit)
			}
			switch options := p.Options.(type) {
			case *stat.Options:
				if options.WideLayout {
					t.Errorf("%s: with names beside the values both are tiny", *p.Title)
				}
			case *timeseries.Options:
				if slices.Contains(options.Legend.Calcs, "lastNotNull") {
					t.Errorf("%s: what has ended would have a last value", *p.Title)
				}
			case *table.Options:
				if custom, is := p.FieldConfig.Defaults.Custom.(*table.FieldConfig); !is || custom.MinWidth == nil {
					t.Errorf("%s: the last columns may be cut off", *p.Title)
				}
			default:
			}
		}
	}
}

// The word for an empty panel is not that of a cell or a series without a value. And an
// empty answer leaves no columns and no frame, or Grafana would not say the word.
func TestOnlyWhatIsEmptySaysSo(t *testing.T) {
	for _, b := range boards.Boards() {
		_, panels := panelsOf(t, b)
		for _, p := range panels {
			var last string // transformation that leaves columns out
			for _, tr := range p.Transformations {
				if tr.Id != "organize" {
					last = tr.Id
				}
			}
			if several := len(p.Targets) > 1; p.Type == "table" && several && last != "groupBy" || (p.Type == "table" && !several || p.Type == "state-timeline") && last != "filterFieldsByName" {
				t.Errorf("%s: empty answers are left to Grafana by %q", *p.Title, last)
			}
			if p.Type != "table" && p.Type != "timeseries" {
				continue
			}
			if o := p.FieldConfig.Overrides; len(o) == 0 || o[0].Matcher.Options != "/.*/" || o[0].Properties[0].Id != "noValue" {
				t.Errorf("%s: a value that is missing reads %q", *p.Title, *p.FieldConfig.Defaults.NoValue)
			}
		}
	}
}

// What has no value is neither good nor bad: a process that is gone is not green.
func TestWhatIsNotThereIsNeitherGoodNorBad(t *testing.T) {
	for _, b := range boards.Boards() {
		_, panels := panelsOf(t, b)
		for _, p := range panels {
			if steps := p.FieldConfig.Defaults.Thresholds.Steps; steps[0].Value != nil || steps[0].Color == "green" || steps[0].Color == "red" {
				t.Errorf("%s: without a value it is %s", *p.Title, steps[0].Color)
			}
		}
	}
}

// The page for operators names panels as they are, and says for each board which panel it means.
func TestThePageForOperatorsNamesPanelsThatExist(t *testing.T) {
	named, wrong := namedPanels(read(t, boards.OperatePage))
	for _, w := range wrong {
		t.Error(w)
	}
	if named < 10 {
		t.Errorf("%d panels are named", named)
	}
	for _, planted := range []string{
		"See the driver's failures on the overview.", `"Spans" on the overview.`, `See "No such panel".`,
		`"Spans" on the board of nothing.`, `"Holders" is full. Look on the overview.`,
	} {
		if _, wrong := namedPanels(planted); len(wrong) == 0 {
			t.Errorf("nothing is wrong with %s", planted)
		}
	}
}

// namedPanels counts the panels that a text quotes, and says what is wrong with them.
func namedPanels(text string) (named int, wrong []string) {
	text = strings.Join(strings.Fields(text), " ")
	titles := map[string][]string{} // the titles of a board; of all by ""
	for _, b := range boards.Boards() {
		for _, p := range b.Panels {
			titles[b.File], titles[""] = append(titles[b.File], p.Title), append(titles[""], p.Row, p.Title)
		}
	}
	quoted := regexp.MustCompile(`"([^"]+)"`)
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		named++
		if !slices.Contains(titles[""], m[1]) {
			wrong = append(wrong, fmt.Sprintf("no board has a panel %q", m[1]))
		}
	}
	for _, m := range regexp.MustCompile(`([^.;?!]*) on the (?:overview|board of (?:the )?(\w+))`).FindAllStringSubmatch(text, -1) {
		board := cmp.Or(m[2], "overview")
		if !slices.ContainsFunc(quoted.FindAllStringSubmatch(m[1], -1), func(q []string) bool { return slices.Contains(titles[board], q[1]) }) {
			wrong = append(wrong, fmt.Sprintf("%q names no panel of the board", m[0]))
		}
	}
	return named, wrong
}
