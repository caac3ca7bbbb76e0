package servers

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// How long things may take on a busy machine. Each ends as soon as it is true.
const (
	beginTime    = patience
	baselineTime = 8 * time.Second
	moveTime     = 5 * time.Minute
)

// Every query of every panel and the expression of every alert are asked of a
// real Prometheus, before and after the scene that is declared to move them.
func TestEveryPanelAndAlertIsMovedByItsScene(t *testing.T) {
	program, p := buildStage(t)
	s := startStage(t, program)
	w := startPrometheus(t, prometheusConfig(t, s, p.Scenes))
	if !until(t.Context(), beginTime, func() bool { return len(w.query(t, `sum_over_time(up[30s]) > 4`)) == len(p.Scenes) }) {
		t.Fatalf("not all of %d scenes are scraped: %v", len(p.Scenes), w.query(t, "up"))
	}
	control := controlsOf(p)
	before, controlBefore := watchQuiet(t, w, p, control)
	s.act(t)
	acted := time.Now()
	moves, raised := newMoves(p, before), raisings{}
	if until(t.Context(), moveTime, func() bool {
		moved, fired := moves.look(t, w, p), raised.look(t, w, p)
		return moved && fired
	}) {
		t.Logf("%d queries and %d alerts moved within %v", len(p.Queries), len(p.Alerts), time.Since(acted).Round(time.Second))
	}
	moves.report(t, p)
	raised.report(t, p)
	for i, q := range control {
		var moved bool
		var seen string
		if !until(t.Context(), patience, func() bool { // a free may be pending just when it is scraped
			moved, seen = q.moved(t, w, controlBefore[i])
			return !moved
		}) {
			t.Errorf("%s\n%s\nmoves where nothing happens: %s", q.Where, q.expand(), seen)
		}
	}
	wantExemplars(t, w, p)
	wantHealthyRules(t, w, p)
	for _, a := range w.alerts(t) {
		if at := a.Labels["instance"]; at == quiet || at == "idle" {
			t.Errorf("where nothing is wrong, %s is %s", a.Labels["alertname"], a.State)
		}
	}
}

// quiet is the scene in which nothing happens.
const quiet = "quiet"

// controlsOf are the queries that must not move there: all but times, which a
// busy machine moves by itself.
func controlsOf(p plan) (control []plannedQuery) {
	for _, q := range p.Queries {
		if q.Unit != "s" && q.Proof.Is == 0 && q.Proof.After == 0 && !q.Fleet && q.Proof.Scene != quiet {
			q.Proof.Scene = quiet
			control = append(control, q)
		}
	}
	return control
}

// span is the lowest and the highest that a query was.
type span struct{ low, high float64 }

// watchQuiet is what each query was before anything happened. Nothing alerts
// meanwhile.
func watchQuiet(t *testing.T, w watcher, p plan, control []plannedQuery) (before, controlBefore []span) {
	t.Helper()
	all, alerted := slices.Concat(p.Queries, control), map[string]bool{}
	seen := make([]span, len(all))
	for i := range seen {
		seen[i] = span{math.Inf(1), math.Inf(-1)}
	}
	unseen := func() bool { return slices.ContainsFunc(seen, func(s span) bool { return s.low > s.high }) }
	for begin := time.Now(); time.Since(begin) < baselineTime || unseen() && time.Since(begin) < patience; {
		for i, q := range all {
			v, there := q.measure(t, w)
			if !there && q.Proof.By < 0 { // a scrape is late, and nothing falls from 0
				continue
			}
			seen[i] = span{min(seen[i].low, v), max(seen[i].high, v)}
		}
		for _, a := range w.alerts(t) {
			alerted[a.Labels["alertname"]+" on "+a.Labels["instance"]] = true
		}
	}
	for name := range alerted {
		t.Errorf("%s before anything happened", name)
	}
	return seen[:len(p.Queries)], seen[len(p.Queries):]
}

// moves are the queries that are not moved yet, with what was seen last.
type moves struct {
	before  []span
	waiting map[int]string
}

func newMoves(p plan, before []span) moves {
	m := moves{before, map[int]string{}}
	for i := range p.Queries {
		m.waiting[i] = ""
	}
	return m
}

// look reports whether all are moved.
func (m moves) look(t *testing.T, w watcher, p plan) bool {
	t.Helper()
	for i := range m.waiting {
		if moved, seen := p.Queries[i].moved(t, w, m.before[i]); moved {
			delete(m.waiting, i)
		} else {
			m.waiting[i] = seen
		}
	}
	return len(m.waiting) == 0
}

func (m moves) report(t *testing.T, p plan) {
	t.Helper()
	for i, seen := range m.waiting {
		q := p.Queries[i]
		t.Errorf("%s\n%s\nis not moved by scene %q: %s", q.Where, q.expand(), q.Proof.Scene, seen)
	}
}

// tooFar is how many times its least move a query may move: one that shows bytes
// where it should show blocks moves further.
const tooFar = 100

func between(v, low, high float64) bool { return low <= v && v <= high }

// moved reports whether a query is where its proof says, and what is seen.
func (q plannedQuery) moved(t *testing.T, w watcher, before span) (bool, string) {
	t.Helper()
	v, there := q.measure(t, w)
	seen := fmt.Sprintf("%v now (data: %v), %v to %v before, %+v", v, there, before.low, before.high, q.Proof)
	switch {
	case !there:
		return false, seen
	case q.Proof.Is != 0:
		return v == q.Proof.Is, seen
	case q.Proof.After != 0:
		return v > q.Proof.After, seen
	case q.Proof.By > 0:
		return between(v, before.high+q.Proof.By, before.high+tooFar*q.Proof.By), seen
	}
	return between(v, before.low+tooFar*q.Proof.By, before.low+q.Proof.By), seen
}

// raisings are the states that alerts have reached on their scenes.
type raisings map[string]string

// look reports whether all have fired.
func (r raisings) look(t *testing.T, w watcher, p plan) bool {
	t.Helper()
	for _, a := range w.alerts(t) {
		name := a.Labels["alertname"]
		wanted := slices.ContainsFunc(p.Alerts, func(want plannedAlert) bool { return name == want.Name && a.Labels["instance"] == want.Scene })
		if wanted && a.Labels["clock"] == "short" && r[name] != "firing" {
			r[name] = a.State
			wantAnnotations(t, a)
		}
	}
	return !slices.ContainsFunc(p.Alerts, func(a plannedAlert) bool { return r[a.Name] != "firing" })
}

func (r raisings) report(t *testing.T, p plan) {
	t.Helper()
	for _, a := range p.Alerts {
		if r[a.Name] != "firing" {
			t.Errorf("%s is %q on scene %q, not firing: %s", a.Name, r[a.Name], a.Scene, shorten(a.Expr))
		}
	}
}

// wantAnnotations demands texts whose templates could be filled in.
func wantAnnotations(t *testing.T, a alert) {
	t.Helper()
	for _, name := range []string{"summary", "description", "dashboard_url", "runbook_url"} {
		if text := a.Annotations[name]; text == "" || strings.Contains(text, "<no value>") || strings.Contains(text, "<error") {
			t.Errorf("%s: %s is %q", a.Labels["alertname"], name, text)
		}
	}
}

// wantExemplars demands a trace behind each query that draws exemplars.
func wantExemplars(t *testing.T, w watcher, p plan) {
	t.Helper()
	asked := 0
	for _, q := range p.Queries {
		if !q.Exemplars {
			continue
		}
		asked++
		if strings.Contains(q.Expr, "_bucket") && q.Proof.Scene != "jobs" {
			q.Proof.Scene = "work" // which is traced, as are those of failures and of jobs
		}
		traces := w.traces(t, q.expand())
		if len(traces) == 0 || slices.ContainsFunc(traces, func(id string) bool { return len(id) != 32 }) {
			t.Errorf("%s: traces %q", q.Where, traces)
		}
	}
	if asked == 0 {
		t.Error("no query draws exemplars")
	}
}

// wantHealthyRules demands that every rule, as it is shipped and as the test
// shortened it, was evaluated without an error.
func wantHealthyRules(t *testing.T, w watcher, p plan) {
	t.Helper()
	var data struct {
		Groups []struct {
			Name  string
			Rules []struct{ Name, Health, LastError string }
		}
	}
	w.ask(t, "rules", url.Values{}, &data)
	healthy := 0
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				t.Errorf("%s: %s: %s %s", g.Name, r.Name, r.Health, r.LastError)
			}
			healthy++
		}
	}
	if healthy != 2*(len(p.Alerts)+p.Records) {
		t.Errorf("%d rules, want the %d alerts and the %d records twice", healthy, len(p.Alerts), p.Records)
	}
}
