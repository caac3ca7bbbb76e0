package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// The values of labels that stand for a launch without a name, and for work that is no launch's.
const (
	unnamedLaunch = "unnamed"
	otherWork     = "other work"
)

// DeviceTimes gathers when the device did launches, by their names, and which waits held them up. The zero value is ready.
// It tells apart the first [MaxTags] names, and as many pairs of who waited for whom; the rest is [OtherTag]. It is an
// [oplog.DeviceWorkSink]: a launch that is timed counts as often as its weight says.
type DeviceTimes struct {
	mu       sync.Mutex
	since    time.Time
	launches map[string]*launchTimes
	waits    map[waitPair]time.Duration
	lost     uint64
}

// launchTimes are those of launches of one name.
type launchTimes struct{ ran, held deviceDurations }

// deviceDurations are durations, with the newest in each classic bucket that has a span.
type deviceDurations struct {
	latency
	newest [classicBounds + 1]*exemplar
}

func (d *deviceDurations) note(took time.Duration, w *oplog.DeviceWork) {
	took = max(0, took)
	cell := grid.cellOf(uint64(took))
	d.cells[cell] += w.Weight
	d.calls += w.Weight
	d.nanoseconds += uint64(took) * w.Weight
	if !w.Span.IsZero() {
		d.newest[grid.classic[cell]] = &exemplar{w.Span, took, w.Ended}
	}
}

// snapshot is what was noted so far.
func (d *deviceDurations) snapshot() latency {
	now := d.latency
	for _, x := range d.newest {
		if x != nil {
			now.exemplars = append(now.exemplars, *x)
		}
	}
	slices.SortFunc(now.exemplars, func(a, b exemplar) int { return a.at.Compare(b.at) })
	return now
}

// waitPair is a launch's name and that of what it waited for.
type waitPair struct{ launch, waitedFor string }

// Lost counts launches whose time is not known.
func (d *DeviceTimes) Lost(launches int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost += uint64(launches)
}

// Done counts a launch.
func (d *DeviceTimes) Done(w *oplog.DeviceWork) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := launchLabel(w.Name)
	if w.Launch == 0 {
		name = allocationWaits
	}
	held := w.Unattributed
	for i := range w.Waits {
		of := &w.Waits[i]
		if of.Held > 0 {
			held += of.Held
			d.waited(name, of, of.Held*time.Duration(w.Weight))
		}
	}
	if w.Unattributed > 0 {
		d.wait(waitPair{name, string(OtherTag)}, w.Unattributed*time.Duration(w.Weight))
	}
	if w.Launch == 0 {
		return
	}
	times := d.of(name)
	times.ran.note(w.Ended.Sub(w.Began), w)
	times.held.note(held, w)
}

// allocationWaits is what allocations are called that wait for other streams' uses of their memory.
const allocationWaits = "allocation"

// launchLabel is a launch's name as it can be a label.
func launchLabel(name string) string {
	if name == "" {
		return unnamedLaunch
	}
	return names.Bound(name)
}

func (d *DeviceTimes) of(name string) *launchTimes {
	if d.launches == nil {
		d.launches, d.since = map[string]*launchTimes{}, time.Now()
	}
	if d.launches[name] == nil {
		if len(d.launches) >= MaxTags {
			name = string(OtherTag)
		}
		if d.launches[name] == nil {
			d.launches[strings.Clone(name)] = &launchTimes{}
		}
	}
	return d.launches[name]
}

func (d *DeviceTimes) waited(name string, of *oplog.DeviceWait, held time.Duration) {
	pair := waitPair{name, otherWork}
	if of.For.Launch != 0 {
		pair.waitedFor = launchLabel(of.Launch)
	}
	d.wait(pair, held)
}

func (d *DeviceTimes) wait(pair waitPair, held time.Duration) {
	if d.waits == nil {
		d.waits = map[waitPair]time.Duration{}
	}
	if _, known := d.waits[pair]; !known && len(d.waits) >= MaxTags {
		pair = waitPair{string(OtherTag), string(OtherTag)}
	} else if !known { // names may be parts of large texts
		pair = waitPair{strings.Clone(pair.launch), strings.Clone(pair.waitedFor)}
	}
	d.waits[pair] += held
}

// DeviceTimesSnapshot is what [DeviceTimes] have gathered.
type DeviceTimesSnapshot struct {
	since     time.Time
	ran, held map[string]latency
	waits     map[waitPair]time.Duration
	lost      uint64
}

// Snapshot is what was gathered so far.
func (d *DeviceTimes) Snapshot() DeviceTimesSnapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := DeviceTimesSnapshot{since: d.since, ran: map[string]latency{}, held: map[string]latency{}, waits: maps.Clone(d.waits), lost: d.lost}
	for name, times := range d.launches {
		s.ran[name], s.held[name] = times.ran.snapshot(), times.held.snapshot()
	}
	return s
}

func (s DeviceTimesSnapshot) sortedWaits() []waitPair {
	return slices.SortedFunc(maps.Keys(s.waits), func(a, b waitPair) int {
		return strings.Compare(a.launch+"\x00"+a.waitedFor, b.launch+"\x00"+b.waitedFor)
	})
}

var deviceTimeMetrics = []family[DeviceTimesSnapshot]{
	{histogram("gpumem_launch_device_seconds", "Time that launches took on the device, by name, classic and native: from the end of their last wait to the end of their work. Those of sampled traces and one in so many of the others on each stream are timed, and count for all; 64 names, the rest as other. The sum over time is how many launches the device does at once. Exemplars are of those with a span.", "launch"),
		func(s DeviceTimesSnapshot, out sender) { s.each(out, s.ran) }},
	{histogram("gpumem_launch_held_seconds", "Time that launches were held up on the device by waits for other streams, by name, classic and native.", "launch"),
		func(s DeviceTimesSnapshot, out sender) { s.each(out, s.held) }},
	{counter("gpumem_device_wait_seconds_total", "Time that launches of one name were held up on the device by waits for launches of another, and of streams for memory that others used (launch is allocation); 64 pairs, the rest as other.", "launch", "waited_for"),
		func(s DeviceTimesSnapshot, out sender) {
			for _, pair := range s.sortedWaits() {
				out.send(s.waits[pair].Seconds(), pair.launch, pair.waitedFor)
			}
		}},
	{counter("gpumem_device_times_lost_total", "Launches that were to be timed and of which it is not known when the device did them: too many were under way, the device or the machine stood still, or the driver failed."),
		whole(func(s DeviceTimesSnapshot) uint64 { return s.lost })},
}

func (s DeviceTimesSnapshot) each(out sender, of map[string]latency) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		times := of[name]
		out.latency(&times, s.since, name)
	}
}
