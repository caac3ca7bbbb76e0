// Package metrics exports what a stack of GPU memory counts to Prometheus.
// [Collector] reads a [Source] for each device; [Calls] counts the operations that
// a layer sees, and [TagSeries] decides which tags have series of their own.
//
// Every metric stands once, in the table of the group that it is read with: name,
// help, labels, and how its samples are read. [Catalogue] lists them, and
// docs/metrics.md is made of that.
package metrics

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// deviceLabel is the label that carries the device's ordinal.
const deviceLabel = "device"

// Device is what every source has: a [core.Resource] or a [core.Runtime].
type Device interface {
	// Ordinal is the device's number; it must not change.
	Ordinal() int
	// Stats is a snapshot that is taken without a device call.
	Stats() core.Stats
}

// Source is where the metrics of one device come from. Device is required;
// the metrics of a function that is nil are left out. Each is called once a
// scrape; it must be safe for concurrent use and must not call the device.
type Source struct {
	Device Device
	// Operations are the calls seen by the outermost layer; see [Calls].
	Operations func() Operations
	// Holders is what each tag holds, by state.
	Holders func() []core.Holder
	// Tags are the tags of Holders that have series of their own. If it is nil the
	// collector keeps them, and looks at the tags with each scrape: then it matters
	// when and how often that is.
	Tags *TagSeries
	// Windows are the peaks of memory over fixed windows of time.
	Windows func() []readings.WindowPeak
	// Streams is the state of the stream pool.
	Streams func() readings.StreamStats
	// Findings counts findings by kind and tag.
	Findings func() []TagFindings
	// Guard is the state of the debug guard.
	Guard func() GuardStats
	// Incidents is what became of the findings to be written to files.
	Incidents func() incident.Stats
	// Memory is what the device's memory was when it was last read.
	Memory func() DeviceMemory
	// Limits are the limits that others set on the device's memory, when it was last read.
	Limits func() []readings.MemoryLimit
	// History is the state of the history in memory.
	History func() HistoryStats
	// Info says which device it is; the zero DeviceInfo is left out.
	Info DeviceInfo
	// Build says what runs; the zero BuildInfo is left out.
	Build BuildInfo
	// Started is when the runtime was opened; the zero time is left out.
	Started time.Time
	// Dumps counts the dumps of the history, by every trigger and outcome.
	Dumps func() []dump.Count
	// Waiting is how many jobs wait for their reservation.
	Waiting func() int
	// LogDropped counts log records that were dropped.
	LogDropped func() uint64
	// DeviceTimes is when the device did launches; see [DeviceTimes].
	DeviceTimes func() DeviceTimesSnapshot
	// Jobs is what jobs needed and waited for; see [Jobs].
	Jobs func() JobsSnapshot
	// RecordersDropped counts launch recorders dropped without an end; see
	// [core.Runtime.DroppedRecorders].
	RecordersDropped func() uint64
	// Health is how well the runtime is; see [core.Runtime.Health].
	Health func() core.Health
	// StickyErrors counts the errors that lost the device; see
	// [core.Runtime.StickyErrors].
	StickyErrors func() uint64
}

// groups are all metrics of a device, in the order of the catalogue.
func (s Source) groups() []group {
	var stats func() core.Stats
	if s.Device != nil {
		stats = s.Device.Stats
	}
	return []group{
		read(stats, statMetrics...),
		read(s.Windows, windowMetrics),
		read(s.Memory, memoryMetrics...),
		read(s.Limits, limitMetrics),
		read(known(s.Info), infoMetrics),
		read(s.amountsByTag(), holderMetrics...),
		read(s.tagPeaks(), tagPeakMetric),
		read(s.Operations, operationMetrics...),
		read(s.Streams, streamMetrics...),
		read(s.Findings, findingMetrics),
		read(s.Guard, guardMetrics...),
		read(s.Incidents, incidentMetrics),
		read(s.Dumps, dumpMetrics),
		read(s.History, historyMetrics...),
		read(s.Waiting, waitingMetrics),
		read(s.LogDropped, logMetrics),
		read(s.DeviceTimes, deviceTimeMetrics...),
		read(s.Jobs, jobMetrics...),
		read(s.RecordersDropped, recorderMetrics),
		read(s.Health, healthMetrics...),
		read(s.StickyErrors, stickyMetrics),
		read(known(s.Build), buildMetrics),
		read(known(s.Started), startMetrics),
	}
}

// Collector exports metrics to Prometheus. It keeps no samples: each scrape takes
// one snapshot of each source and makes no device call. It is safe for concurrent
// use.
type Collector struct {
	groups []described
}

var _ prometheus.Collector = (*Collector)(nil)

// described is a group that a source has.
type described struct {
	group
	descs  []*prometheus.Desc
	births *births
}

// NewCollector returns a collector of sources, to be registered once. A
// source without a device, or two for the same ordinal, are a
// [core.InvalidRequestError].
func NewCollector(sources ...Source) (*Collector, error) {
	c := &Collector{}
	seen := map[int]bool{}
	for _, s := range sources {
		if s.Device == nil {
			return nil, &core.InvalidRequestError{Op: "metrics.NewCollector", Field: "Device", Reason: "nil: pass a runtime or a resource"}
		}
		ordinal := s.Device.Ordinal()
		if seen[ordinal] {
			return nil, &core.InvalidRequestError{Op: "metrics.NewCollector", Field: "Device",
				Reason: fmt.Sprintf("two sources for device %d: their series would collide", ordinal)}
		}
		seen[ordinal] = true
		c.add(s.Started, prometheus.Labels{deviceLabel: strconv.Itoa(ordinal)}, s.groups()...)
	}
	return c, nil
}

// add adds groups that count from a time on, now if that is zero.
func (c *Collector) add(since time.Time, constant prometheus.Labels, groups ...group) {
	if since.IsZero() {
		since = time.Now()
	}
	for _, g := range groups {
		if g.collect == nil {
			continue
		}
		d := described{group: g, births: &births{last: since, of: map[series]time.Time{}}}
		for _, m := range g.declarations {
			d.descs = append(d.descs, prometheus.NewDesc(m.name, m.help, m.labels, constant))
		}
		c.groups = append(c.groups, d)
	}
}

// Describe sends the descriptions, which are fixed when the collector is
// made.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range c.groups {
		for _, desc := range g.descs {
			ch <- desc
		}
	}
}

// Collect takes one snapshot of each source.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, g := range c.groups {
		l, end := g.births.begin()
		g.collect(l, g.descs, ch)
		end()
	}
}
