package servers

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// The unit tests of the alerts are told of scrapes that never fail and of
// processes that never end. From each of them these are derived: two scrapes in
// a row are missed, at any time before the alert or after it, or the process is
// started again and is well. What fired goes on firing, and nobody else's alert
// fires.

const (
	// missed is how many scrapes in a row an alert survives.
	missed = 2
	// late is by how many minutes an alert may be late because of them.
	late = missed
	// downtime is how long after its last sample a restarted process is asked.
	downtime = missed + 3
	// near is how many minutes before an alert scrapes are missed at each of
	// them, far how many at every tenth.
	near, far = 8, 70
)

// derivedTest is promtool's form of a test.
type derivedTest struct {
	Name     string          `yaml:"name"`
	Interval string          `yaml:"interval"`
	Series   []derivedSeries `yaml:"input_series"`
	Asks     []derivedAsk    `yaml:"promql_expr_test"`
}

type derivedSeries struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type derivedAsk struct {
	Expr    string          `yaml:"expr"`
	Time    string          `yaml:"eval_time"`
	Samples []derivedSample `yaml:"exp_samples"`
}

type derivedSample struct {
	Labels string  `yaml:"labels"`
	Value  float64 `yaml:"value"`
}

// timeline is a series with a value for each minute.
type timeline struct {
	name   string
	values []parser.SequenceValue
}

func timelinesOf(t *testing.T, inputs []derivedSeries, end int) (all []timeline) {
	t.Helper()
	for _, in := range inputs {
		_, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(in.Series + " " + in.Values)
		must(t, err)
		all = append(all, timeline{in.Series, values}.until(end))
	}
	return all
}

func (l timeline) counts() bool {
	name, _, _ := strings.Cut(l.name, "{")
	return strings.HasSuffix(name, "_total") || strings.HasSuffix(name, "_count")
}

func lives(v parser.SequenceValue) bool { return !v.Omitted && !value.IsStaleNaN(v.Value) }

// until goes on as the series ended: a counter at its last rate.
func (l timeline) until(end int) timeline {
	last, step := l.values[len(l.values)-1], 0.0
	if before := len(l.values) - 2; l.counts() && before >= 0 && lives(l.values[before]) {
		step = last.Value - l.values[before].Value
	}
	for lives(last) && len(l.values) <= end {
		last.Value += step
		l.values = append(l.values, last)
	}
	return l
}

// without has no samples from a minute on, as Prometheus marks it.
func (l timeline) without(from, count int) timeline {
	l.values = slices.Clone(l.values)
	for i := from; i < min(from+count, len(l.values)); i++ {
		l.values[i] = parser.SequenceValue{Value: math.Float64frombits(value.StaleNaN)}
	}
	return l
}

// restarted begins anew at zero after a gap.
func (l timeline) restarted(from int) timeline {
	l = l.without(from, missed)
	for i := from + missed; i < len(l.values); i++ {
		l.values[i] = parser.SequenceValue{}
	}
	return l
}

func (l timeline) notation() derivedSeries {
	var words []string
	for _, v := range l.values {
		switch {
		case v.Omitted:
			words = append(words, "_")
		case value.IsStaleNaN(v.Value):
			words = append(words, "stale")
		default:
			words = append(words, strconv.FormatFloat(v.Value, 'f', -1, 64))
		}
	}
	return derivedSeries{l.name, strings.Join(words, " ")}
}

// firing asks for exactly the alerts that a test expects.
func (a alertTest) firing(minute int) derivedAsk {
	ask := derivedAsk{Expr: fmt.Sprintf(`ALERTS{alertname=%q, alertstate="firing"}`, a.Alertname), Time: fmt.Sprintf("%dm", minute)}
	for _, e := range a.ExpAlerts {
		all := maps.Clone(e.ExpLabels)
		all["__name__"], all["alertname"], all["alertstate"] = "ALERTS", a.Alertname, "firing"
		ask.Samples = append(ask.Samples, derivedSample{labels.FromMap(all).String(), 1})
	}
	return ask
}

// derive makes the tests with gaps and restarts from one expectation.
func derive(t *testing.T, test ruleTest, a alertTest) (all []derivedTest) {
	t.Helper()
	at, err := time.ParseDuration(a.EvalTime)
	must(t, err)
	minute := int(at.Minutes())
	asked := minute // an alert that is silent is not to be heard later
	if len(a.ExpAlerts) > 0 {
		asked += late
	}
	lines := timelinesOf(t, test.InputSeries, asked+downtime)
	add := func(what string, change func(timeline) timeline, asks ...int) {
		d := derivedTest{Name: fmt.Sprintf("%s: %s at %s: %s", test.Name, a.Alertname, a.EvalTime, what), Interval: "1m"}
		for _, l := range lines {
			d.Series = append(d.Series, change(l).notation())
		}
		for _, m := range asks {
			d.Asks = append(d.Asks, a.firing(m))
		}
		all = append(all, d)
	}
	for from := max(1, minute-far); from < minute; from++ {
		if minute-from > near && from%10 != 0 {
			continue
		}
		add(fmt.Sprintf("missed from minute %d on", from), func(l timeline) timeline { return l.without(from, missed) }, asked)
	}
	if len(a.ExpAlerts) > 0 {
		add("missed after it", func(l timeline) timeline { return l.without(minute+1, missed) }, minute+1, minute+2, asked)
		add("started again", func(l timeline) timeline { return l.restarted(minute + 1) }, minute+1, minute+2, minute+downtime)
	}
	return all
}

// gapped are tests that miss scrapes by themselves.
func (r ruleTest) gapped() bool {
	return slices.ContainsFunc(r.InputSeries, func(s derivedSeries) bool { return strings.Contains(s.Values, "stale") })
}

// deriveAll derives from the tests of the alerts that are named, or of all, for
// rules that lie in a file.
func deriveAll(t *testing.T, rules string, only ...string) (file string, count int) {
	t.Helper()
	var tests ruleTests
	text, err := os.ReadFile(rulesTest)
	must(t, err)
	must(t, yaml.Unmarshal(text, &tests))
	var all []derivedTest
	for _, test := range tests.Tests {
		for _, a := range test.AlertRuleTest {
			if !test.gapped() && (len(only) == 0 || slices.Contains(only, a.Alertname)) {
				all = append(all, derive(t, test, a)...)
			}
		}
	}
	derived, err := yaml.Marshal(map[string]any{"rule_files": []string{rules}, "evaluation_interval": "1m", "tests": all})
	must(t, err)
	file = filepath.Join(t.TempDir(), "derived.yaml")
	must(t, os.WriteFile(file, derived, 0o600))
	return file, len(all)
}

func TestEveryAlertSurvivesMissedScrapesAndARestart(t *testing.T) {
	t.Parallel() // to the watch over the overview, which mostly sleeps
	rules, err := filepath.Abs(rulesFile)
	must(t, err)
	file, count := deriveAll(t, rules)
	if said, err := promtool(t, "test", "rules", file); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	t.Logf("%d tests with gaps and restarts", count)
	if count < 300 {
		t.Error("too few to prove anything")
	}
}

// Alerts that look at the moment, or that end with their condition, do not.
func TestAlertsThatDoNotSurviveAreSeen(t *testing.T) {
	text, err := os.ReadFile(rulesFile)
	must(t, err)
	without := func(pattern, with string) string {
		return regexp.MustCompile(pattern).ReplaceAllString(string(text), with)
	}
	for alert, broken := range map[string]string{
		"FencepostDeviceLost":    without(`(?m)^ *keep_firing_for: .*\n`, ""),
		"FencepostDegraded":      without(`min_over_time\((gpumem_health\{[^}]*\})\[5m\]\)`, "$1"),
		"FencepostLedgerDrift":   without(`m.._over_time\((gpumem_drift_bytes)\[5m\]\)`, "$1"),
		"FencepostMemoryCorrupt": without(`(?m)^ *keep_firing_for: .*\n|max_over_time\((gpumem_findings_total\{[^}]*\})\[6h\]\)`, "$1"),
	} {
		rules := filepath.Join(t.TempDir(), "rules.yaml")
		must(t, os.WriteFile(rules, []byte(broken), 0o600))
		file, _ := deriveAll(t, rules, alert)
		if said, err := promtool(t, "test", "rules", file); err == nil || broken == string(text) || !strings.Contains(said, "FAILED") {
			t.Errorf("%s passes\n%.2000s", alert, said)
		}
	}
}
