package guardcost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
)

// plan is a comparison of every work under every tier.
type plan struct {
	Config
	rows       []int
	goroutines int
	kernels    []time.Duration
	threads    []int
	traces     []string
	events     int // of each trace; 0 is all
}

// alwaysOn are the first of Tiers: those that may stay on for good.
var alwaysOn = []string{"off", "ledger", "sample"}

// compareAll runs a plan. Each work is closed before the next begins.
func compareAll(t *testing.T, rt *fencepost.Runtime, p plan) []Result {
	t.Helper()
	tiers := Tiers()
	var all []Result
	compare := func(w Work, tiers []string, cfg Config, end func() error) {
		t.Helper()
		results, err := Compare(ctx, rt, w, tiers, cfg)
		must(t, errors.Join(err, end()))
		for _, r := range results { // at once: the whole may take minutes, or be cut off
			t.Logf("%s, %s: %.3f (%.3f to %.3f)", r.Work, r.Guard, r.Ratio, r.Low, r.High)
		}
		all = append(all, results...)
	}
	for _, rows := range p.rows {
		w, err := newSortJoin(ctx, rt, p.goroutines, rows)
		must(t, err)
		compare(w, tiers, p.Config, w.Close)
	}
	w, err := newReplays(rt, p.traces...)
	must(t, err)
	for _, trace := range w.loaded {
		if p.events > 0 {
			trace.Rows = trace.Rows[:p.events]
		}
	}
	longer := p.Config
	longer.Side *= 2 // bound by the host, which is noisier than a GPU
	compare(w, tiers, longer, func() error { return nil })
	busy, err := newAtWork(ctx, rt, w)
	must(t, err)
	compare(busy, tiers[:len(alwaysOn)], longer, func() error { return busy.Close(ctx) })
	unbisected := tiers[:len(tiers)-1] // to compare after launches of microseconds is to measure comparing
	for _, lasting := range p.kernels {
		for _, threads := range p.threads {
			w, err := newShortKernels(ctx, rt, threads, lasting)
			must(t, err)
			compare(w, unbisected, p.Config, w.Close)
		}
	}
	return all
}

// show prints the results, and demands of them what holds on any machine.
func show(t *testing.T, rt *fencepost.Runtime, results []Result) {
	t.Helper()
	props, err := rt.Driver().Properties()
	must(t, err)
	var table bytes.Buffer
	must(t, Print(&table, props.Name, results))
	t.Logf("\n%s", table.String())
	for _, r := range results {
		guards := r.Guard != "off" && r.Guard != "ledger"
		switch {
		case r.Off <= 0 || r.On <= 0 || r.Ratio <= 0 || r.Host <= 0 || r.Host > 1:
			t.Errorf("%s, %s: no time passed: %+v", r.Work, r.Guard, r)
		case r.Min > r.Q1 || r.Q1 > r.Ratio || r.Ratio > r.Q3 || r.Q3 > r.Max || r.Low > r.Ratio || r.Ratio > r.High:
			t.Errorf("%s, %s: out of order: %+v", r.Work, r.Guard, r)
		case !guards && r.Guarded+r.Verified > 0:
			t.Errorf("%s, %s: blocks were guarded: %+v", r.Work, r.Guard, r)
		case (r.Guard == "sample:1" || r.Guard == "hunt") && (r.Guarded == 0 || r.Verified+r.Unchecked < r.Guarded):
			t.Errorf("%s, %s: not every guarded block was compared or counted as left out: %+v", r.Work, r.Guard, r)
		}
	}
}

func TestEveryTierIsComparedWithTheGuardOff(t *testing.T) {
	rt, _ := simulated(t, fencepost.Config{})
	results := compareAll(t, rt, plan{Config: Config{Pairs: 2, Side: 300 * time.Microsecond},
		rows: []int{256}, goroutines: 2, kernels: []time.Duration{10 * time.Microsecond}, threads: []int{1, 2}, traces: []string{"tables"}, events: 100})
	if want := 4*len(Tiers()) - 2 + len(alwaysOn); len(results) != want {
		t.Errorf("%d results, want %d", len(results), want)
	}
	show(t, rt, results)
	if m := rt.Guard().Mode().String(); m != "off" {
		t.Errorf("the guard is left in mode %s", m)
	}
}

// scripted is work that allocates a block a unit and misbehaves on request.
type scripted struct {
	rt                *fencepost.Runtime
	double            bool
	runError, verdict error
	runs              []int
	modes             []string
}

func (s *scripted) Name() string { return "scripted" }
func (s *scripted) Check() error { return s.verdict }

func (s *scripted) Run(ctx context.Context, n int) error {
	s.runs, s.modes = append(s.runs, n), append(s.modes, s.rt.Guard().Mode().String())
	time.Sleep(time.Duration(n) * 50 * time.Microsecond)
	for range n {
		b, err := s.rt.Allocate(ctx, core.Request{Bytes: 1 << 10})
		if err != nil {
			return err
		}
		if _, err = s.rt.Deallocate(ctx, b.ID); err != nil {
			return err
		}
		if s.double {
			_, _ = s.rt.Deallocate(ctx, b.ID)
		}
	}
	return s.runError
}

// The side is long enough that a busy machine does several units in it.
func TestPairsAlternateAndAreOfOneSize(t *testing.T) {
	rt, _ := simulated(t, fencepost.Config{})
	work := &scripted{rt: rt}
	results, err := Compare(ctx, rt, work, []string{"hunt"}, Config{Pairs: 4, Side: 100 * time.Millisecond})
	must(t, err)
	timed := len(work.modes) - 8
	if got := strings.Join(work.modes[timed:], ","); got != "off,hunt,hunt,off,off,hunt,hunt,off" {
		t.Errorf("the sides were %s", got)
	}
	for _, n := range work.runs[timed:] {
		if n != results[0].Units {
			t.Errorf("a side had %d units and another %d", n, results[0].Units)
		}
	}
	if r := results[0]; r.Units < 2 || r.Guarded != uint64(4*r.Units) {
		t.Errorf("%d units a side, %d blocks guarded in 4 pairs", r.Units, r.Guarded)
	}
}

// A figure of a run that went wrong would say nothing.
func TestAComparisonFailsWithItsWork(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		work  scripted
		pairs int
		want  string
	}{
		"the work fails":        {scripted{runError: broken}, 1, "broken"},
		"the results are wrong": {scripted{verdict: broken}, 1, "broken"},
		"no pairs":              {scripted{}, 0, "say 1 or more"},
		"the guard finds a bug": {scripted{double: true}, 1, "findings in a clean program"},
	} {
		t.Run(name, func(t *testing.T) {
			rt, _ := simulated(t, fencepost.Config{})
			c.work.rt = rt
			_, err := Compare(ctx, rt, &c.work, []string{"ledger"}, Config{Pairs: c.pairs, Side: time.Microsecond})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the comparison ended with %v, want %q", err, c.want)
			}
		})
	}
}

func TestAnUnknownTierIsRefused(t *testing.T) {
	rt, _ := simulated(t, fencepost.Config{})
	if _, err := Compare(ctx, rt, &scripted{rt: rt}, []string{"off", "sometimes"}, Config{Pairs: 1}); !errors.Is(err, core.ErrInvalidRequest) {
		t.Errorf("the error is %v", err)
	}
}

func TestTheFiguresAreThoseOfThePairs(t *testing.T) {
	var with, without []side
	for i := range 21 { // ratios 1.00, 1.01 ... 1.20, in a mixed order
		i = i * 8 % 21
		without = append(without, side{100 * time.Millisecond, 25 * time.Millisecond})
		with = append(with, side{time.Duration(100+i) * time.Millisecond, time.Millisecond})
	}
	r := summarise(with, without)
	got := fmt.Sprintf("%.2f %.2f %.2f %.2f %.2f %.2f %v %v %d", r.Min, r.Q1, r.Ratio, r.Q3, r.Max, r.Host, r.Off, r.On, r.Pairs)
	if want := "1.00 1.05 1.10 1.15 1.20 0.25 100ms 110ms 21"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if r.Low < 1.03 || r.Low > 1.08 || r.High < 1.12 || r.High > 1.17 {
		t.Errorf("95 %% interval %.3f to %.3f", r.Low, r.High)
	}
	if again := summarise(with, without); again != r {
		t.Errorf("the same pairs gave %+v and %+v", r, again)
	}
}
