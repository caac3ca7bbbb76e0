package servers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// historyTest is a history that no scene plays in a test's time, and what a query
// of a board makes of it. Each step is a minute.
type historyTest struct {
	name, where string
	series      map[string]string // with the labels of a runtime added
	at          string
	want        map[string]float64 // by labels; of an annotation the marks' labels
}

var historyTests = []historyTest{
	{"a bug that was there before counts with what it grew by", "overview: Memory bugs found: A",
		map[string]string{`gpumem_findings_total{kind="oob-write", tag="rows"}`: "10000x60 10000+10x60"}, "2h", map[string]float64{`{}`: 600}},
	{"the first finding of a tag, whose series begins with it", "overview: Memory bugs found: A",
		map[string]string{`gpumem_findings_total{kind="oob-write", tag="untagged"}`: "0x90", `gpumem_findings_total{kind="oob-write", tag="rows"}`: "_x80 1x39"}, "2h", map[string]float64{`{}`: 1}},
	{"a process that was started again found more", "overview: Memory bugs found: A",
		map[string]string{`gpumem_findings_total{kind="oob-write", tag="rows"}`: "0x70 0+10x10 100x5 stale _x3 0+5x10 50x25"}, "2h", map[string]float64{`{}`: 150}},
	{"what the device could not serve is no bug of the program", "overview: Memory bugs found: B",
		map[string]string{`gpumem_findings_total{kind="oom", tag="rows"}`: "0+100x120", `gpumem_findings_total{kind="double-free", tag="rows"}`: "0x100 3x20"}, "2h", map[string]float64{`{}`: 3}},
	{"a finding in the first minutes of a process", "overview: annotation: Findings",
		map[string]string{`gpumem_findings_total{kind="oob-write", tag="untagged"}`: "_x10 0x5", `gpumem_findings_total{kind="oob-write", tag="rows"}`: "_x11 1x5"}, "11m", map[string]float64{`{instance="a", device="0", kind="oob-write"}`: 1}},
	{"is marked at one time", "overview: annotation: Findings",
		map[string]string{`gpumem_findings_total{kind="oob-write", tag="untagged"}`: "_x10 0x5", `gpumem_findings_total{kind="oob-write", tag="rows"}`: "_x11 1x5"}, "12m", nil},
	{"a finding before the first scrape of a process", "overview: annotation: Findings",
		map[string]string{`gpumem_findings_total{kind="oob-write", tag="rows"}`: "_x10 1x5", `gpumem_runtime_start_time_seconds`: "_x10 590x5"}, "10m", map[string]float64{`{instance="a", device="0", kind="oob-write"}`: 1}},
	{"a finding of a process that was started again, which the one before had more of", "overview: annotation: Findings",
		map[string]string{`gpumem_findings_total{kind="oob-write", tag="rows"}`: "0x10 3x20 stale _ 1x10", `gpumem_runtime_start_time_seconds`: "0x31 stale _ 2010x10"}, "34m", map[string]float64{`{instance="a", device="0", kind="oob-write"}`: 1}},
	{"a finding while a scrape was missed", "overview: annotation: Findings",
		map[string]string{`gpumem_findings_total{kind="oob-write", tag="rows"}`: "0x20 stale 1x10"}, "22m", map[string]float64{`{instance="a", device="0", kind="oob-write"}`: 1}},
	{"a guard that is switched", "overview: annotation: Guard switches",
		map[string]string{`gpumem_guard_mode{mode="hunt"}`: "0x10 stale 1x5"}, "12m", map[string]float64{`{instance="a", device="0", mode="hunt"}`: 1}},
	{"and none that begins so", "overview: annotation: Guard switches",
		map[string]string{`gpumem_guard_mode{mode="hunt"}`: "_x10 1x5", `gpumem_runtime_start_time_seconds`: "_x10 590x5"}, "10m", nil},
	{"a bug that goes on is marked where it began", "overview: annotation: Findings",
		map[string]string{`gpumem_findings_total{kind="oob-write", tag="rows"}`: "0x20 1+1x20"}, "21m", map[string]float64{`{instance="a", device="0", kind="oob-write"}`: 1}},
	{"and not for as long as it lives", "overview: annotation: Findings",
		map[string]string{`gpumem_findings_total{kind="oob-write", tag="rows"}`: "0x20 1+1x20"}, "30m", nil},
	{"a scrape that was missed is no end", "overview: annotation: Ends",
		map[string]string{`gpumem_runtime_start_time_seconds`: "7x10 stale 7x10"}, "11m", nil},
	{"a process that ended is marked at its last scrape", "overview: annotation: Ends",
		map[string]string{`gpumem_runtime_start_time_seconds`: "7x10 stale _x10"}, "14m", map[string]float64{`{instance="a", device="0"}`: 600_000}},
	{"and not before it is believed", "overview: annotation: Ends",
		map[string]string{`gpumem_runtime_start_time_seconds`: "7x10 stale _x10"}, "11m", nil},
	{"without rules nothing is green", "overview: Firing alerts: A",
		map[string]string{`gpumem_findings_total{kind="oob-write", tag="rows"}`: "0x10"}, "5m", nil},
	{"with rules nothing fires", "overview: Firing alerts: A",
		map[string]string{`instance_kind:gpumem_findings_total{kind="oob-write"}`: "0x10"}, "5m", map[string]float64{`{}`: 0}},
	{"an idle runtime has no rate to divide by", "guard: How far back the history reaches: A",
		map[string]string{`gpumem_history_capacity`: "65536x10", `gpumem_history_records_total`: "10x10"}, "10m", nil},
	{"a budget that is full for moments only", "overview: Fullest: B",
		map[string]string{`gpumem_budget_charged_bytes`: "1x10", `gpumem_budget_limit_bytes`: "100x10", `gpumem_memory_window_peak_bytes{state="live", window="60s"}`: "99x10"}, "5m", map[string]float64{`{}`: 0.99}},
	{"what is charged counts, too", "overview: Fullest: B",
		map[string]string{`gpumem_budget_charged_bytes`: "80x10", `gpumem_budget_limit_bytes`: "100x10", `gpumem_memory_window_peak_bytes{state="live", window="60s"}`: "10x10"}, "5m", map[string]float64{`{}`: 0.8}},
}

// The queries of boards, asked of a history by promtool.
func TestQueriesMakeTheRightOfAHistory(t *testing.T) {
	_, p := buildStage(t)
	var tests []derivedTest
	for _, h := range historyTests {
		d := derivedTest{Name: h.name, Interval: "1m"}
		for series, values := range h.series {
			name, more, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
			d.Series = append(d.Series, derivedSeries{name + `{job="j", instance="a", device="0", ` + more + `}`, values})
		}
		ask := derivedAsk{Time: h.at}
		for _, q := range p.Queries {
			if q.Where == h.where {
				ask.Expr = boardQuery(strings.NewReplacer("$__rate_interval", "4m", "$__range", "1h").Replace(q.Expr))
			}
		}
		if ask.Expr == "" {
			t.Errorf("there is no %s", h.where)
			continue
		}
		for labels, value := range h.want {
			ask.Samples = append(ask.Samples, derivedSample{labels, value})
		}
		d.Asks = append(d.Asks, ask)
		tests = append(tests, d)
	}
	text, err := yaml.Marshal(map[string]any{"rule_files": []string{}, "evaluation_interval": "1m", "tests": tests})
	must(t, err)
	file := filepath.Join(t.TempDir(), "history.yaml")
	must(t, os.WriteFile(file, text, 0o600))
	if said, err := promtool(t, "test", "rules", file); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}
