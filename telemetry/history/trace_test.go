package history_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/history"
)

// entry is one entry of a trace, as the format's description has it.
type entry struct {
	Ph, Name, Cat, S, BP string
	PID, TID             int
	TS                   *float64
	Dur                  *float64
	ID                   *int
	Args                 map[string]any
}

type line struct{ pid, tid int }

// tracefile is a trace that keeps the rules of the format.
type tracefile struct {
	entries []entry
	names   map[line]string
}

// readTrace reads a trace and checks the rules of the trace event format: the
// required fields of each phase; named tracks; times that do not go back; slices
// of one track nest or are apart; each flow has one tail and one head, in that
// order, inside slices; counters are numbers that are not negative.
func readTrace(t *testing.T, file []byte) *tracefile {
	t.Helper()
	var top struct {
		TraceEvents     []entry
		DisplayTimeUnit string
	}
	must.Do(t, json.Unmarshal(file, &top))
	f := &tracefile{entries: top.TraceEvents, names: map[line]string{}}
	if err := f.check(); err != nil || top.DisplayTimeUnit != "ns" {
		t.Fatalf("%v, unit %q", err, top.DisplayTimeUnit)
	}
	return f
}

func (f *tracefile) check() error {
	lastTS, tails := 0.0, map[int]float64{}
	for i, e := range f.entries {
		at := line{e.PID, e.TID}
		switch {
		case e.Name == "" || e.Cat == "" || e.PID <= 0 || e.TID <= 0 || e.PID == e.TID || e.TS == nil || *e.TS < 0:
			return fmt.Errorf("entry %d lacks a field: %+v", i, e)
		case e.Ph == "M":
			if e.Name == "thread_name" {
				f.names[at] = e.Args["name"].(string)
			}
			continue
		case *e.TS < lastTS:
			return fmt.Errorf("entry %d is at %v, the one before at %v", i, *e.TS, lastTS)
		case f.names[at] == "":
			return fmt.Errorf("entry %d is on the unnamed track %v", i, at)
		}
		lastTS = *e.TS
		switch e.Ph {
		case "X":
			if e.Dur == nil || *e.Dur < 0 {
				return fmt.Errorf("slice %d has no duration", i)
			}
		case "s":
			if _, twice := tails[*e.ID]; twice {
				return fmt.Errorf("flow %d begins twice", *e.ID)
			}
			tails[*e.ID] = *e.TS
		case "f":
			tail, ok := tails[*e.ID]
			if !ok || tail > *e.TS || e.BP != "e" {
				return fmt.Errorf("flow %d ends before it begins", *e.ID)
			}
			delete(tails, *e.ID)
		case "C":
			if n, ok := e.Args["bytes"].(float64); !ok || n < 0 || n > 1<<63 {
				return fmt.Errorf("counter %d is %v", i, e.Args)
			}
		case "i":
			if e.S != "t" && e.S != "p" {
				return fmt.Errorf("instant %d has scope %q", i, e.S)
			}
		default:
			return fmt.Errorf("phase %q", e.Ph)
		}
		if (e.Ph == "s" || e.Ph == "f") && f.sliceAt(at, *e.TS) == nil {
			return fmt.Errorf("flow %d touches no slice of %q", *e.ID, f.names[at])
		}
	}
	if len(tails) > 0 {
		return fmt.Errorf("%d flows do not end", len(tails))
	}
	return f.checkNesting()
}

func (f *tracefile) checkNesting() error {
	open := map[line][]float64{}
	for _, e := range f.entries {
		if e.Ph != "X" {
			continue
		}
		at, end := line{e.PID, e.TID}, *e.TS+*e.Dur
		stack := open[at]
		for len(stack) > 0 && stack[len(stack)-1] <= *e.TS+1e-4 {
			stack = stack[:len(stack)-1]
		}
		if len(stack) > 0 && end > stack[len(stack)-1]+1e-4 {
			return fmt.Errorf("slices of %q overlap at %v", f.names[at], *e.TS)
		}
		open[at] = append(stack, end)
	}
	return nil
}

func (f *tracefile) sliceAt(at line, ts float64) *entry {
	for i := range f.entries {
		e := &f.entries[i]
		if e.Ph == "X" && (line{e.PID, e.TID}) == at && *e.TS <= ts && ts < *e.TS+max(*e.Dur, 0.0005) {
			return e
		}
	}
	return nil
}

// slices on a track, by name.
func (f *tracefile) slices(track string) (names []string) {
	for _, e := range f.entries {
		if e.Ph == "X" && f.names[line{e.PID, e.TID}] == track {
			names = append(names, e.Name)
		}
	}
	return names
}

// flows are "from -> to" by the names of slices.
func (f *tracefile) flows() (all []string) {
	from := map[int]string{}
	for _, e := range f.entries {
		switch e.Ph {
		case "s":
			from[*e.ID] = f.sliceAt(line{e.PID, e.TID}, *e.TS).Name
		case "f":
			all = append(all, from[*e.ID]+" -> "+f.sliceAt(line{e.PID, e.TID}, *e.TS).Name)
		}
	}
	return all
}

// last is the last value of each counter.
func (f *tracefile) last() map[string]uint64 {
	last := map[string]uint64{}
	for _, e := range f.entries {
		if e.Ph == "C" {
			last[e.Name] = uint64(e.Args["bytes"].(float64))
		}
	}
	return last
}

func (f *tracefile) instants() (names []string) {
	for _, e := range f.entries {
		if e.Ph == "i" {
			names = append(names, e.Name)
		}
	}
	return names
}

func TestStreamsAreTracksLaunchesSlicesWaitsArrowsAndBytesCounters(t *testing.T) {
	rt, source := open(t, hunting())
	if _, err := rt.Allocate(t.Context(), core.Request{Bytes: 1 << 50, Tag: "huge"}); err == nil {
		t.Fatal("a petabyte was allocated")
	}
	s := streams(t, rt, 2)
	rows, keys := allocate(t, rt, 1000, s[0], "rows"), allocate(t, rt, 5000, s[0], "keys")
	launch(t, rt, "fill", s[0], core.Write, rows)
	launch(t, rt, "sort", s[1], core.ReadWrite, rows, keys)
	launch(t, rt, "join", s[0], core.Read, rows)
	free(t, rt, keys)
	if _, err := rt.Deallocate(t.Context(), keys.ID); err == nil {
		t.Fatal("a second free went through")
	}
	must.Do(t, rt.ReapPending(t.Context()))
	f := readTrace(t, export(t, source, history.Perfetto))

	tracks := slices.Sorted(maps.Values(f.names))
	for _, want := range []string{"host", "stream " + s[0].String(), "stream " + s[0].String() + " memory", "stream " + s[1].String()} {
		if !slices.Contains(tracks, want) {
			t.Errorf("no track %q among %q", want, tracks)
		}
	}
	if got := without(f.slices("stream "+s[0].String()), "gpumem.guard"); !slices.Equal(got, []string{"fill", "join"}) {
		t.Errorf("the launches of the first stream are %q", got)
	}
	if got := without(f.slices("stream "+s[1].String()), "gpumem.guard"); !slices.Equal(got, []string{"sort"}) {
		t.Errorf("the launches of the second stream are %q", got)
	}
	for _, want := range []string{"fill -> sort", "sort -> join"} {
		if !slices.Contains(f.flows(), want) {
			t.Errorf("no arrow %q among %q", want, f.flows())
		}
	}
	for _, want := range []string{"refusal", "finding double-free"} {
		if !slices.Contains(f.instants(), want) {
			t.Errorf("no instant %q among %q", want, f.instants())
		}
	}
	stats := rt.Stats()
	if got := f.last(); got["live bytes"] != stats.Live.Bytes+stats.Quarantined.Bytes || got["quarantined bytes"] != stats.Quarantined.Bytes ||
		got["pending bytes"] != stats.Pending.Bytes || stats.Quarantined.Bytes == 0 {
		t.Errorf("the counters end at %v, the books at %+v", got, stats)
	}
	free(t, rt, rows)
}

// A check that cannot fail checks nothing.
func TestTheRulesOfTracesAreBrokenByBrokenTraces(t *testing.T) {
	const names = `{"ph":"M","name":"thread_name","cat":"m","pid":1,"tid":9,"ts":0,"args":{"name":"stream"}},`
	for name, text := range map[string]string{
		"no track":         `{"ph":"X","name":"a","cat":"c","pid":1,"tid":9,"ts":1,"dur":1,"args":{}}`,
		"no duration":      names + `{"ph":"X","name":"a","cat":"c","pid":1,"tid":9,"ts":1}`,
		"back in time":     names + `{"ph":"X","name":"a","cat":"c","pid":1,"tid":9,"ts":2,"dur":1},{"ph":"X","name":"a","cat":"c","pid":1,"tid":9,"ts":1,"dur":1}`,
		"overlap":          names + `{"ph":"X","name":"a","cat":"c","pid":1,"tid":9,"ts":1,"dur":5},{"ph":"X","name":"a","cat":"c","pid":1,"tid":9,"ts":3,"dur":5}`,
		"a lonely tail":    names + `{"ph":"X","name":"a","cat":"c","pid":1,"tid":9,"ts":1,"dur":5},{"ph":"s","name":"a","cat":"c","pid":1,"tid":9,"ts":1,"id":1}`,
		"a lonely head":    names + `{"ph":"X","name":"a","cat":"c","pid":1,"tid":9,"ts":1,"dur":5},{"ph":"f","bp":"e","name":"a","cat":"c","pid":1,"tid":9,"ts":1,"id":1}`,
		"outside a slice":  names + `{"ph":"X","name":"a","cat":"c","pid":1,"tid":9,"ts":1,"dur":5},{"ph":"s","name":"a","cat":"c","pid":1,"tid":9,"ts":6,"id":1}`,
		"negative counter": names + `{"ph":"C","name":"a","cat":"c","pid":1,"tid":9,"ts":1,"args":{"bytes":-1}}`,
		"unknown phase":    names + `{"ph":"?","name":"a","cat":"c","pid":1,"tid":9,"ts":1}`,
	} {
		f := &tracefile{names: map[line]string{}}
		must.Do(t, json.Unmarshal([]byte("["+text+"]"), &f.entries))
		if f.check() == nil {
			t.Errorf("%s: nothing was found", name)
		}
	}
}

func TestLaunchesThatOverlapOnAStreamGetLanes(t *testing.T) {
	rt, source := open(t, hunting())
	s := streams(t, rt, 1)[0]
	one, two := allocate(t, rt, 100, s, "a"), allocate(t, rt, 100, s, "b")
	first := must.Get(rt.Core().PrepareUse(t.Context(), core.UseRequest{Stream: s, Launch: "first", Uses: []core.Use{{Block: one.ID, Access: core.Read}}}))(t)
	second := must.Get(rt.Core().PrepareUse(t.Context(), core.UseRequest{Stream: s, Launch: "second", Uses: []core.Use{{Block: two.ID, Access: core.Read}}}))(t)
	must.Do(t, rt.Core().FinishUse(t.Context(), first))
	f := readTrace(t, export(t, source, history.Perfetto)) // while the second is in flight
	if got := f.slices("stream " + s.String() + " (2)"); !slices.Equal(got, []string{"second"}) {
		t.Errorf("on the second lane there is %q", got)
	}
	outcomes := map[string]any{}
	for _, e := range f.entries {
		if e.Ph == "X" && e.Args["outcome"] != nil {
			outcomes[e.Name] = e.Args["outcome"]
		}
	}
	if outcomes["first"] != "finished" || outcomes["second"] != "in flight" {
		t.Errorf("outcomes %v", outcomes)
	}
	must.Do(t, rt.Core().AbortUse(t.Context(), second))
	free(t, rt, one, two)
}

func TestFindingsOlderThanTheHistoryDoNotStretchIt(t *testing.T) {
	now := time.Now()
	finding := func(age time.Duration) core.Finding {
		return core.Finding{Kind: names.FindingLeak, Time: now.Add(-age), Victim: core.Block{ID: core.BlockID{Ordinal: 1}}, Text: "a leak"}
	}
	events := []oplog.Event{{Op: oplog.OpReap, Time: now.Add(-time.Minute)}}
	source := history.Source{Events: func() []oplog.Event { return events },
		Findings: func() []core.Finding { return []core.Finding{finding(time.Hour), finding(time.Second)} }}
	f := readTrace(t, export(t, source, history.Perfetto))
	if got := f.instants(); !slices.Equal(got, []string{"finding leak"}) {
		t.Errorf("instants %q", got)
	}
	for _, e := range f.entries {
		if *e.TS > 60e6 {
			t.Errorf("%q is %v seconds after the beginning", e.Name, *e.TS/1e6)
		}
	}
	events = nil // findings alone
	if got := readTrace(t, export(t, source, history.Perfetto)).instants(); len(got) != 2 {
		t.Errorf("without operations there are the instants %q", got)
	}
}

// What the device did has a track of each stream: what a launch waited for and its work, with an arrow that ends where the
// wait did. Times that overlap by their error make no second lane; memory that is used again only waits.
func TestTheDeviceHasTracks(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	at := func(us int) time.Time { return start.Add(time.Duration(us) * time.Microsecond) }
	work := func(w oplog.DeviceWork, stream core.StreamID, from, to int) oplog.Event {
		w.Stream, w.Prepared, w.Began, w.Ended = stream, start, at(from), at(to)
		if w.Reached.IsZero() {
			w.Reached = w.Began
		}
		return w.Event(0)
	}
	events := []oplog.Event{
		work(oplog.DeviceWork{Launch: 1, Name: "merge"}, 1, 100, 5000),
		work(oplog.DeviceWork{Launch: 2, Name: "query", Reached: at(150), Bound: 2 * time.Microsecond, Waits: []oplog.DeviceWait{
			{Stream: 1, For: core.WaitRef{Launch: 1}, Launch: "merge", Tag: "index", Generation: 7, Access: core.Write, Held: 4852 * time.Microsecond},
			{Stream: 3, For: core.WaitRef{Launch: 9}, Held: -1}}}, 2, 5002, 6000),
		work(oplog.DeviceWork{Launch: 3}, 2, 5999, 6500), // a microsecond too early
		work(oplog.DeviceWork{Reached: at(6500), Waits: []oplog.DeviceWait{{Stream: 1, For: core.WaitRef{Launch: 8}, Launch: "gone", Tag: "batch", Held: 500 * time.Microsecond}}}, 2, 7000, 7000),
	}
	f := readTrace(t, export(t, history.Source{Events: func() []oplog.Event { return events }}, history.Perfetto))
	if got := f.slices("stream 1 on the device"); !slices.Equal(got, []string{"merge"}) {
		t.Errorf("the first stream did %q", got)
	}
	if got := f.slices("stream 2 on the device"); !slices.Equal(got, []string{"waits for merge", "query", "launch", "waits for gone"}) {
		t.Errorf("the second stream did %q", got)
	}
	if got := f.flows(); !slices.Equal(got, []string{"merge -> waits for merge"}) {
		t.Errorf("the arrows are %q", got)
	}
	for _, e := range f.entries {
		if e.Ph != "X" {
			continue
		}
		switch e.Name {
		case "waits for merge":
			if *e.TS != 50 || *e.Dur != 4852 || e.Args["tag"] != "index" || e.Args["waited_for"] != 1.0 {
				t.Errorf("%v, %v: %v", *e.TS, *e.Dur, e.Args)
			}
		case "query":
			if *e.TS != 4902 || *e.Dur != 998 || e.Args["queued_ns"] != 150_000.0 || e.Args["held_ns"] != 4852_000.0 || e.Args["clock_error_ns"] != 2000.0 {
				t.Errorf("%v, %v: %v", *e.TS, *e.Dur, e.Args)
			}
		case "launch":
			if *e.TS != 5900 {
				t.Errorf("it begins at %v", *e.TS)
			}
		}
	}
}
