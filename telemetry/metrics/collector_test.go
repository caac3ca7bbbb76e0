package metrics_test

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// device is a fixed snapshot that counts how often it is taken.
type device struct {
	ordinal int
	stats   core.Stats
	reads   int
}

func (d *device) Ordinal() int { return d.ordinal }
func (d *device) Stats() core.Stats {
	d.reads++
	return d.stats
}

// distinct is a snapshot in which no two fields are equal, so that a value under the wrong name
// is seen. Each value follows from the field's name: a new field changes no other.
func distinct(t *testing.T) (s core.Stats) {
	t.Helper()
	seen := map[uint64]string{}
	var fill func(path string, v reflect.Value)
	fill = func(path string, v reflect.Value) {
		h := fnv.New32a()
		_, _ = h.Write([]byte(path))
		n := uint64(1 + h.Sum32()%99991)
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				fill(path+"."+v.Type().Field(i).Name, v.Field(i))
			}
			return
		case reflect.Array:
			for i := range v.Len() {
				fill(path+strconv.Itoa(i), v.Index(i))
			}
			return
		case reflect.Bool:
			v.SetBool(true)
			return
		case reflect.Int64: // a duration
			v.SetInt(int64(n) * int64(time.Second))
		case reflect.Uint64:
			v.SetUint(n)
		case reflect.Float64: // nanoseconds
			v.SetFloat(float64(n) * 1e9)
		default:
			t.Fatalf("%s: fill a %s here", path, v.Kind())
		}
		if other, double := seen[n]; double {
			t.Fatalf("%s has the same value as %s: rename one, or take other values here", path, other)
		}
		seen[n] = path
	}
	fill("", reflect.ValueOf(&s).Elem())
	return s
}

func fullSource(d metrics.Device) metrics.Source {
	calls := &metrics.Calls{}
	for _, op := range []oplog.Op{oplog.OpAllocate, oplog.OpPrepare, oplog.OpFinish, oplog.OpPrepare, oplog.OpFinish, oplog.OpDeallocate} {
		calls.Note(op, 0, time.Microsecond, core.SpanRef{}, nil)
	}
	calls.Note(oplog.OpAllocate, 0, time.Microsecond, core.SpanRef{}, &core.OutOfBudgetError{})
	return metrics.Source{
		Device: d, Operations: func() metrics.Operations { return calls.Snapshot(time.Unix(1, 0), 0) },
		Holders: func() []core.Holder {
			return []core.Holder{{Tag: "sort", State: core.Live, Bytes: 640, Blocks: 2}, {Tag: "sort", State: core.Retired, Bytes: 64, Blocks: 1}, {State: core.Live, Bytes: 8, Blocks: 1}}
		},
		Windows: func() []readings.WindowPeak {
			return []readings.WindowPeak{{Length: 15 * time.Second, Live: 71, Outstanding: 72}, {Length: time.Minute, Live: 73, Outstanding: 74}}
		},
		Limits: func() []readings.MemoryLimit {
			return []readings.MemoryLimit{{Source: "cgroup", Allowed: 82}, {Source: "cgroup", Allowed: 81}, {Source: "cgroup", Allowed: 83}, {Source: "mps", Allowed: 84}}
		},
		Streams: func() readings.StreamStats {
			return readings.StreamStats{Max: 16, Leased: 3, Idle: 2, Adopted: 1, Waiting: 4, Acquires: 50, Refused: 5, WaitTime: 1500 * time.Millisecond, OldestAge: 2500 * time.Millisecond}
		},
		Findings: func() []metrics.TagFindings {
			return []metrics.TagFindings{{names.FindingLeak, "sort", 2}, {names.FindingLeak, "join", 7}, {"odd", "a\xff", 1}, {"odd", "a\xfe", 4}}
		},
		Guard: func() metrics.GuardStats {
			return metrics.GuardStats{Modes: []string{"off", "ledger", "sample", "hunt"}, Mode: "sample", Quarantine: core.Amount{Bytes: 41, Requested: 42, Blocks: 43},
				Counts: map[string]uint64{"guarded": 44, "verified": 45}, Levels: map[string]uint64{"ledger_blocks": 46}}
		},
		Incidents: func() incident.Stats {
			return incident.Stats{Written: 51, Omitted: 52, Dropped: 53, Failed: 54, Removed: 55}
		},
		Memory: func() metrics.DeviceMemory {
			return metrics.DeviceMemory{Read: time.Unix(61, 5e8), Free: 62, Total: 63, Owned: 60, Foreign: 64, DriftRead: time.Unix(65, 0), Drift: -66}
		},
		Info:    metrics.DeviceInfo{UUID: "MIG-b5c627b3-7ab5-8097-6f1f-5b9119c15a8e", PCIBusID: "0000:19:00.0", Host: "node-1", Name: "NVIDIA H200 MIG 1g.18gb", Kind: "cuda"},
		History: func() metrics.HistoryStats { return metrics.HistoryStats{Records: 67, Capacity: 68} },
		Dumps: func() []dump.Count {
			return []dump.Count{{Trigger: dump.Finding, Outcome: dump.Written, Count: 61}, {Trigger: dump.Finding, Outcome: dump.Limited, Count: 62}}
		},
		Waiting:          func() int { return 17 },
		LogDropped:       func() uint64 { return 31 },
		RecordersDropped: func() uint64 { return 32 },
		DeviceTimes:      deviceTimes,
		Jobs:             jobs,
		Health: func() core.Health {
			return core.Health{OK: true, State: names.HealthDegraded, Signs: []core.HealthSign{{Reason: names.HealthFindings, Since: time.Unix(1_700_000_100, 0)}, {Reason: names.HealthTelemetryLoss, Since: time.Unix(1_700_000_000, 0)}}}
		},
		StickyErrors: func() uint64 { return 33 },
		Started:      time.Unix(34, 25e7),
	}
}

const golden = "testdata/metrics.prom"

var update = flag.Bool("update", false, "write "+golden)

func TestGoldenExposition(t *testing.T) {
	d := &device{ordinal: 3, stats: distinct(t)}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(
		must.Get(metrics.NewCollector(fullSource(d)))(t),
		metrics.NewSpanCollector(func() metrics.SpanCounts {
			return metrics.SpanCounts{Started: 100, Ended: 90, Exported: 60, Failed: 10, Dropped: 5}
		}))
	var names []string
	for _, m := range metrics.Catalogue() {
		if m.Name != "gpumem_operation_duration_seconds" { // no two runs have the same
			names = append(names, m.Name)
		}
	}
	if *update {
		got, err := testutil.GatherAndFormat(registry, expfmt.TypeTextPlain, names...)
		must.Do(t, err)
		must.Do(t, os.WriteFile(golden, got, 0o644))
	}
	want, err := os.Open(golden)
	must.Do(t, err)
	defer want.Close()
	if err := testutil.GatherAndCompare(registry, want, names...); err != nil {
		t.Errorf("run \"make generate\" and read the difference: %v", err)
	}
	d.reads = 0
	if _, err := registry.Gather(); err != nil || d.reads != 1 {
		t.Errorf("a scrape took %d snapshots (%v), want 1", d.reads, err)
	}
	problems, err := testutil.GatherAndLint(registry)
	must.Do(t, err)
	for _, p := range problems {
		t.Errorf("lint: %s: %s", p.Metric, p.Text)
	}
}

// A source may have no more than a device, and several devices share a
// collector.
func TestCollectorOfTwoPlainDevices(t *testing.T) {
	c := must.Get(metrics.NewCollector(
		metrics.Source{Device: &device{stats: core.Stats{Limit: 5}}}, metrics.Source{Device: &device{ordinal: 1, stats: core.Stats{Limit: 7}}}))(t)
	const want = `
# HELP gpumem_budget_limit_bytes Budget of the device, 0 if there is none: what was set or, of a GPU, what was free at first, and never more than others allow.
# TYPE gpumem_budget_limit_bytes gauge
gpumem_budget_limit_bytes{device="0"} 5
gpumem_budget_limit_bytes{device="1"} 7
`
	expect.Success(t, testutil.CollectAndCompare(c, strings.NewReader(want), "gpumem_budget_limit_bytes"))
	if n := testutil.CollectAndCount(c, "gpumem_operations_total"); n != 0 {
		t.Errorf("%d samples of a source that is not there", n)
	}
}

// Whatever the state and the reasons, each is a series, and those that hold are 1.
func TestEachStateAndReasonOfHealthIsASeries(t *testing.T) {
	for _, state := range names.HealthStates {
		for _, reason := range names.HealthReasons {
			h := core.Health{State: state, Signs: []core.HealthSign{{Reason: reason}}}
			c := must.Get(metrics.NewCollector(metrics.Source{Device: &device{}, Health: func() core.Health { return h }}))(t)
			states, reasons := samplesBy(t, c, "gpumem_health", "state"), samplesBy(t, c, "gpumem_health_reasons", "reason")
			if len(states) != 4 || len(reasons) != 9 {
				t.Errorf("%d states, %d reasons, want all 4 and 9", len(states), len(reasons))
			}
			for name, v := range states {
				if (v == 1) != (name == state) {
					t.Errorf("in state %v, state %s is %v", state, name, v)
				}
			}
			for name, v := range reasons {
				if (v == 1) != (name == reason) {
					t.Errorf("with reason %v, reason %s is %v", reason, name, v)
				}
			}
		}
	}
}

// Ten thousand tags make a bounded number of series, the largest are kept and
// no byte is lost.
func TestTagsAreCapped(t *testing.T) {
	const tags = 10_000
	var holders []core.Holder
	for i := range tags {
		holders = append(holders, core.Holder{Tag: core.Tag(fmt.Sprintf("tag-%05d", i)), State: core.Live, Bytes: uint64(i), Blocks: 1})
	}
	c := must.Get(metrics.NewCollector(metrics.Source{Device: &device{},
		Holders: func() []core.Holder { return holders }}))(t)
	series := samples(t, c, "gpumem_tag_bytes")
	if len(series) != metrics.MaxTags+1 {
		t.Errorf("%d series, want %d and other", len(series), metrics.MaxTags)
	}
	var sum float64
	for _, v := range series {
		sum += v
	}
	if sum != tags*(tags-1)/2 {
		t.Errorf("the series sum to %v bytes, want %d", sum, tags*(tags-1)/2)
	}
	if series["tag-09999"] != 9999 || series["tag-00000"] != 0 || series["other"] == 0 {
		t.Errorf("the largest tag has %v, other has %v", series["tag-09999"], series["other"])
	}
}

// A tag that is no UTF-8 and its bounded form are one series, not a failed scrape.
func TestOddTagsAreMerged(t *testing.T) {
	c := must.Get(metrics.NewCollector(metrics.Source{Device: &device{},
		Holders: func() []core.Holder {
			return []core.Holder{{Tag: "a\xff", State: core.Live, Bytes: 1},
				{Tag: core.Tag(names.Bound("a\xff")), State: core.Live, Bytes: 2}, {Tag: "a\xfe", State: core.Live,
					Bytes: 8}, {Tag: metrics.OtherTag, State: core.Live, Bytes: 4}}
		}}))(t)
	series := samples(t, c, "gpumem_tag_bytes")
	if len(series) != 3 || series[names.Bound("a\xff")] != 3 || series[names.Bound("a\xfe")] != 8 || series["other"] != 4 {
		t.Errorf("series: %v", series)
	}
}

// samples are the values of a metric by tag.
func samples(t *testing.T, c prometheus.Collector, name string) map[string]float64 {
	t.Helper()
	return samplesBy(t, c, name, "tag")
}

// samplesBy are the values of a gauge or counter by one label, summed over the others.
func samplesBy(t *testing.T, c prometheus.Collector, name string, label string) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families := must.Get(registry.Gather())(t)
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == label {
					values[l.GetValue()] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	return values
}

// A driver that cannot say who its device is has the rest exported.
func TestWhatRunsOnWhichDeviceIsALabelledOne(t *testing.T) {
	build := metrics.BuildInfo{Version: "v1.2.3", Stack: "telemetry(fake)", DeviceKind: "sim", DeviceName: "odd \xff name"}
	for name, c := range map[string]struct {
		source     metrics.Source
		help, want string
	}{
		"gpumem_device_info": {metrics.Source{Info: metrics.DeviceInfo{Host: "h", Name: "old \xff GPU", Kind: "cuda"}}, "Which device it is; always 1. All processes on a GPU have the same uuid for it, whatever its number is to them.",
			`{device="0",device_kind="cuda",device_name="old � GPU",host="h",pci_bus_id="",uuid=""} 1`},
		"gpumem_build_info": {metrics.Source{Build: build}, "What runs; always 1.",
			fmt.Sprintf(`{device="0",device_kind="sim",device_name="odd � name",goversion=%q,stack="telemetry(fake)",version="v1.2.3"} 1`, runtime.Version())},
	} {
		c.source.Device = &device{}
		full := must.Get(metrics.NewCollector(c.source))(t)
		want := "# HELP " + name + " " + c.help + "\n# TYPE " + name + " gauge\n" + name + c.want + "\n"
		expect.Success(t, testutil.CollectAndCompare(full, strings.NewReader(want), name))
		if n := testutil.CollectAndCount(must.Get(metrics.NewCollector(metrics.Source{Device: &device{}}))(t), name); n != 0 {
			t.Errorf("%s: %d samples where nothing is known", name, n)
		}
	}
}

func TestNewCollectorRefusesBadSources(t *testing.T) {
	for name, sources := range map[string][]metrics.Source{
		"no device":        {{}},
		"the same ordinal": {{Device: &device{}}, {Device: &device{}}},
	} {
		if c, err := metrics.NewCollector(sources...); c != nil || !errors.Is(err, core.ErrInvalidRequest) {
			t.Errorf("%s: got %v, %v", name, c, err)
		}
	}
}

func TestUnexportedIsNeverNegative(t *testing.T) {
	if n := (metrics.SpanCounts{Ended: 1, Exported: 2}).Unexported(); n != 0 {
		t.Errorf("%d spans unexported", n)
	}
}

// What was never read is not zero, it is absent.
func TestUnreadMemoryIsLeftOut(t *testing.T) {
	m := metrics.DeviceMemory{}
	c := must.Get(metrics.NewCollector(metrics.Source{Device: &device{},
		Memory: func() metrics.DeviceMemory { return m }}))(t)
	count := func() int {
		return testutil.CollectAndCount(c, "gpumem_device_free_bytes", "gpumem_device_total_bytes", "gpumem_device_foreign_bytes",
			"gpumem_device_read_timestamp_seconds", "gpumem_drift_bytes", "gpumem_drift_read_timestamp_seconds")
	}
	if n := count(); n != 0 {
		t.Errorf("%d samples before anything was read", n)
	}
	m.Read = time.Unix(1, 0)
	if n := count(); n != 4 {
		t.Errorf("%d samples of a device without a drift, want 4", n)
	}
	m.DriftRead = time.Unix(1, 0)
	if n := count(); n != 6 {
		t.Errorf("%d samples, want 6", n)
	}
}

// What the catalogue says is what a scrape shows.
func TestTheCatalogueIsWhatIsExported(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	source := fullSource(&device{stats: distinct(t)})
	source.Build = metrics.BuildInfo{Version: "v1"}
	registry.MustRegister(must.Get(metrics.NewCollector(source))(t),
		metrics.NewSpanCollector(func() metrics.SpanCounts { return metrics.SpanCounts{} }))
	families := must.Get(registry.Gather())(t)
	exported := map[string]metrics.Info{}
	for _, f := range families {
		info := metrics.Info{Type: map[string]string{"GAUGE": "gauge", "COUNTER": "counter", "HISTOGRAM": "histogram"}[f.GetType().String()], Help: f.GetHelp()}
		for _, l := range f.GetMetric()[0].GetLabel() {
			info.Labels = append(info.Labels, l.GetName())
		}
		exported[f.GetName()] = info
	}
	for _, m := range metrics.Catalogue() {
		got, there := exported[m.Name]
		if !there || got.Type != m.Type || got.Help != m.Help || !slices.Equal(got.Labels, m.Labels) {
			t.Errorf("%s: exported (%v) as %+v, the catalogue says %+v", m.Name, there, got, m)
		}
		delete(exported, m.Name)
	}
	if len(exported) > 0 {
		t.Errorf("not in the catalogue: %v", exported)
	}
}

// However many goroutines count on however many streams, with or without sharing one.
func TestNoCallIsLostBetweenStreams(t *testing.T) {
	const each = 2000
	var calls metrics.Calls
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range each {
				calls.Note(oplog.OpAllocate, core.StreamID(g/2+i%200), time.Duration(i), core.SpanRef{}, nil)
			}
		})
	}
	all.Wait()
	o := calls.Snapshot(time.Time{}, 0)
	if n := o.Calls(oplog.OpAllocate); n != 8*each || o.Succeeded(oplog.OpAllocate) != n {
		t.Errorf("%d calls are counted of %d", n, 8*each)
	}
}

// BenchmarkNote counts from goroutines on streams of their own.
func BenchmarkNote(b *testing.B) {
	var calls metrics.Calls
	var streams atomic.Uint64
	b.RunParallel(func(pb *testing.PB) {
		stream := core.StreamID(streams.Add(1))
		for i := 0; pb.Next(); i++ {
			calls.Note(oplog.OpAllocate, stream, time.Duration(500+i%16), core.SpanRef{}, nil)
		}
	})
}

// deviceTimes are of two launches, of which one stands for 100 and was held up.
func deviceTimes() metrics.DeviceTimesSnapshot {
	var d metrics.DeviceTimes
	began := time.Unix(1_700_000_000, 0)
	d.Done(&oplog.DeviceWork{Weight: 10, Began: began, Ended: began, Waits: []oplog.DeviceWait{{Launch: "merge", For: core.WaitRef{Launch: 3}, Held: time.Millisecond}}})
	d.Done(&oplog.DeviceWork{Launch: 1, Name: "sort", Weight: 1, Began: began, Ended: began.Add(3 * time.Millisecond)})
	d.Done(&oplog.DeviceWork{Launch: 1, Name: "query", Weight: 100, Began: began, Ended: began.Add(500 * time.Microsecond), Waits: []oplog.DeviceWait{
		{Launch: "sort", For: core.WaitRef{Launch: 5}, Held: 2 * time.Millisecond}, {For: core.WaitRef{Block: 7}, Held: time.Millisecond}, {Held: -1}}, Unattributed: 4 * time.Millisecond})
	d.Lost(34)
	return d.Snapshot()
}

// However many launches there are, 64 have series of their own, and 64 pairs of who waited for whom.
func TestLaunchesAreBounded(t *testing.T) {
	var d metrics.DeviceTimes
	for i := range 200 {
		d.Done(&oplog.DeviceWork{Launch: 1, Name: fmt.Sprint("launch ", i), Weight: 1, Waits: []oplog.DeviceWait{{Launch: "x", For: core.WaitRef{Launch: 1}, Held: time.Second}}})
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(must.Get(metrics.NewCollector(metrics.Source{Device: &device{}, DeviceTimes: d.Snapshot}))(t))
	for _, f := range must.Get(registry.Gather())(t) {
		count, held := uint64(0), 0.0
		for _, m := range f.GetMetric() {
			count += m.GetHistogram().GetSampleCount()
			held += m.GetCounter().GetValue()
		}
		switch f.GetName() {
		case "gpumem_launch_device_seconds", "gpumem_launch_held_seconds":
			if len(f.GetMetric()) != metrics.MaxTags+1 || count != 200 {
				t.Errorf("%s has %d series of %d launches", f.GetName(), len(f.GetMetric()), count)
			}
		case "gpumem_device_wait_seconds_total":
			if len(f.GetMetric()) != metrics.MaxTags+1 || held != 200 {
				t.Errorf("%s has %d series of %v seconds", f.GetName(), len(f.GetMetric()), held)
			}
		}
	}
}

// A launch's name that is no UTF-8 and its bounded form are one series, not a failed scrape.
func TestOddLaunchesAreMerged(t *testing.T) {
	var d metrics.DeviceTimes
	for _, name := range []string{"a\xff", names.Bound("a\xff"), "sort"} {
		d.Done(&oplog.DeviceWork{Launch: 1, Name: name, Weight: 1, Waits: []oplog.DeviceWait{{Launch: name, For: core.WaitRef{Launch: 1}, Held: time.Second}}})
	}
	c := must.Get(metrics.NewCollector(metrics.Source{Device: &device{}, DeviceTimes: d.Snapshot}))(t)
	if series := samplesBy(t, c, "gpumem_device_wait_seconds_total", "launch"); len(series) != 2 ||
		series[names.Bound("a\xff")] != 2 || series["sort"] != 1 {
		t.Errorf("series: %v", series)
	}
}

// A launch with a span is the exemplar of its bucket, the newest of each.
func TestALaunchOnTheDeviceIsAnExemplar(t *testing.T) {
	var d metrics.DeviceTimes
	began := time.Unix(1_700_000_000, 0)
	for i, took := range []time.Duration{time.Millisecond, time.Second, time.Millisecond, time.Millisecond} {
		span := core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{byte(i + 1)}}
		if i == 3 {
			span = core.SpanRef{}
		}
		d.Done(&oplog.DeviceWork{Launch: 1, Name: "query", Weight: 1, Span: span, Began: began, Ended: began.Add(took)})
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(must.Get(metrics.NewCollector(metrics.Source{Device: &device{}, DeviceTimes: d.Snapshot}))(t))
	spans := map[string]bool{}
	for _, f := range must.Get(registry.Gather())(t) {
		if f.GetName() != "gpumem_launch_device_seconds" {
			continue
		}
		for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
			for _, l := range b.GetExemplar().GetLabel() {
				if l.GetName() == "span_id" {
					spans[l.GetValue()] = true
				}
			}
		}
	}
	if want := map[string]bool{"0200000000000000": true, "0300000000000000": true}; !maps.Equal(spans, want) {
		t.Errorf("the exemplars are of the spans %v, want %v", spans, want)
	}
}
