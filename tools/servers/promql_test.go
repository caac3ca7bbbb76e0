package servers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// aRateInterval stands for $__rate_interval: a time that nobody writes.
const aRateInterval = 251 * time.Second

func parse(t *testing.T, expr string) (parser.Expr, error) {
	t.Helper()
	return parser.NewParser(parser.Options{}).ParseExpr(strings.NewReplacer("$__rate_interval", aRateInterval.String(), "$__range", "1h").Replace(expr))
}

// The rules of Grafana's dashboard-linter about queries, with Prometheus' own
// parser.
func TestEveryQueryKeepsTheRules(t *testing.T) {
	_, p := buildStage(t)
	for _, q := range p.Queries {
		for _, wrong := range faultsOf(t, q) {
			t.Errorf("%s: %s: %s", q.Where, wrong, q.Expr)
		}
	}
	for _, a := range p.Alerts {
		if _, err := parse(t, a.Expr); err != nil {
			t.Errorf("%s: %v", a.Name, err)
		}
	}
}

// Without this the test above could pass because nothing is looked at.
func TestABadQueryIsSeen(t *testing.T) {
	const where = `{job=~"$job", instance=~"$instance", device=~"$device"}`
	for expr, want := range map[string]string{
		`sum(`: "parse", `gpumem_events`: "job", `gpumem_events{job=~"$job"}`: "instance", `gpumem_events{job=~"$job", instance=~"$instance"}`: "device",
		`gpumem_launches_total` + where: "rate", `rate(gpumem_launches_total` + where + `[5m])`: "$__rate_interval", `sum(rate(gpumem_events` + where + `[$__rate_interval]))`: "no counter",
	} {
		if found := faultsOf(t, plannedQuery{Expr: expr}); !strings.Contains(strings.Join(found, "; "), want) {
			t.Errorf("%s: %q, want %q", expr, found, want)
		}
	}
	good := `sum(rate(gpumem_launches_total` + where + `[$__rate_interval]))`
	if found := faultsOf(t, plannedQuery{Expr: good}); len(found) > 0 {
		t.Errorf("%s: %q", good, found)
	}
}

// faultsOf is what is wrong with a query.
func faultsOf(t *testing.T, q plannedQuery) (found []string) {
	t.Helper()
	expr, err := parse(t, q.Expr)
	if err != nil {
		return []string{"does not parse: " + err.Error()}
	}
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			found = append(found, matchersOf(selector, q.Fleet)...)
			found = append(found, useOf(selector, path, q.Raw)...)
		}
		return nil
	})
	return found
}

func matchersOf(s *parser.VectorSelector, fleet bool) (found []string) {
	want := []string{"job", "instance", "device"}
	switch own := strings.HasPrefix(s.Name, "gpumem_") || strings.Contains(s.Name, ":gpumem_"); {
	case strings.HasPrefix(s.Name, "DCGM_"):
		return nil // another exporter's, which knows GPUs and no runtimes
	case fleet:
		want = want[:1]
	case !own, strings.HasPrefix(s.Name, "gpumem_spans_"):
		want = want[:2] // they are the process's
	}
	for _, name := range want {
		if !slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool {
			return m.Name == name && m.Type == labels.MatchRegexp && m.Value == "$"+name
		}) {
			found = append(found, "no matcher of the variable "+name)
		}
	}
	return found
}

// useOf looks at the function around a selector: counters are seen as rates,
// over the interval that Grafana picks for the scrape interval.
func useOf(s *parser.VectorSelector, path []parser.Node, raw bool) []string {
	function, window := "", time.Duration(0)
	if len(path) >= 2 {
		if matrix, ok := path[len(path)-1].(*parser.MatrixSelector); ok {
			window = matrix.Range
		}
		for _, node := range slices.Backward(path) {
			if call, ok := node.(*parser.Call); ok {
				function = call.Func.Name
				break
			}
		}
	}
	rated := slices.Contains([]string{"rate", "increase"}, function)
	counter := slices.ContainsFunc([]string{"_total", "_bucket", "_sum", "_count", "_seconds", "_job_peak_bytes"}, func(end string) bool { return strings.HasSuffix(s.Name, end) })
	switch {
	case strings.HasSuffix(s.Name, "_total") && !rated && !raw:
		return []string{"a counter outside of a rate"}
	case rated && !counter:
		return []string{"a rate of what is no counter"}
	case rated && window != aRateInterval && !raw && !strings.Contains(s.Name, ":"):
		return []string{"a rate not over $__rate_interval"}
	}
	return nil
}
