package telemetry

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost/core"
)

// LabelDevice is the label that carries the device's ordinal.
const LabelDevice = "device"

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
	// Operations are the calls seen by the outermost layer; see
	// [Resource.Operations].
	Operations func() Operations
	// Holders is what each tag holds, by state.
	Holders func() []core.Holder
	// Tags are the tags of Holders that have series of their own. If it is nil the
	// collector keeps them, and looks at the tags with each scrape: then it matters
	// when and how often that is.
	Tags *TagSeries
	// Windows are the peaks of memory over fixed windows of time.
	Windows func() []WindowPeak
	// Streams is the state of the stream pool.
	Streams func() StreamStats
	// Findings counts findings by kind and tag; see [Findings.CountsByTag].
	Findings func() []TagFindings
	// Guard is the state of the debug guard.
	Guard func() GuardStats
	// Incidents is what became of the findings to be written to files.
	Incidents func() IncidentStats
	// Memory is what the device's memory was when it was last read.
	Memory func() DeviceMemory
	// History is the state of the history in memory.
	History func() HistoryStats
	// Info says which device it is; the zero DeviceInfo is left out.
	Info DeviceInfo
	// Build says what runs; the zero BuildInfo is left out.
	Build BuildInfo
	// Started is when the runtime was opened; the zero time is left out.
	Started time.Time
	// Dumps counts the dumps of the history, by every trigger and outcome.
	Dumps func() []DumpCount
	// LogDropped counts log records that were dropped.
	LogDropped func() uint64
	// RecordersDropped counts launch recorders dropped without an end; see
	// [core.Runtime.DroppedRecorders].
	RecordersDropped func() uint64
	// Health is how well the runtime is; see [core.Runtime.Health].
	Health func() core.Health
	// StickyErrors counts the errors that lost the device; see
	// [core.Runtime.StickyErrors].
	StickyErrors func() uint64
}

// StreamStats is a snapshot of a pool of streams.
type StreamStats struct {
	// Limit is how many streams the pool may have.
	Limit int
	// Leased, Idle and Adopted are the streams that are out on lease, that
	// wait for one, and that callers brought.
	Leased, Idle, Adopted int
	// Waiting is the number of callers that wait for a lease.
	Waiting int
	// Acquisitions counts leases granted, Refusals those refused or given
	// up.
	Acquisitions, Refusals uint64
	// Waited is the time that callers spent waiting, in all.
	Waited time.Duration
	// Oldest is the age of the longest lease held, zero if none is.
	Oldest time.Duration
}

// Collector exports the metrics of devices to Prometheus. It keeps no
// samples: each scrape takes one snapshot of each source and makes no device
// call. It is safe for concurrent use.
type Collector struct {
	devices []deviceParts
}

var _ prometheus.Collector = (*Collector)(nil)

// deviceParts are the parts that one source can fill.
type deviceParts struct {
	metrics described
	parts   []part
}

// part is a group of metrics that are read together.
type part struct {
	definitions []definition
	collect     func(out emitter)
}

// NewCollector returns a collector of sources, to be registered once. A
// source without a device, or two for the same ordinal, are a
// [core.InvalidRequestError].
func NewCollector(sources ...Source) (*Collector, error) {
	c := &Collector{}
	seen := map[int]bool{}
	for _, s := range sources {
		if s.Device == nil {
			return nil, &core.InvalidRequestError{Op: "telemetry.NewCollector", Field: "Device", Reason: "nil: pass a runtime or a resource"}
		}
		ordinal := s.Device.Ordinal()
		if seen[ordinal] {
			return nil, &core.InvalidRequestError{Op: "telemetry.NewCollector", Field: "Device",
				Reason: fmt.Sprintf("two sources for device %d: their series would collide", ordinal)}
		}
		seen[ordinal] = true
		c.devices = append(c.devices, newDeviceParts(s, ordinal))
	}
	return c, nil
}

func newDeviceParts(s Source, ordinal int) deviceParts {
	d := deviceParts{parts: s.parts()}
	var definitions []definition
	for _, p := range d.parts {
		definitions = append(definitions, p.definitions...)
	}
	d.metrics = describe(definitions, prometheus.Labels{LabelDevice: strconv.Itoa(ordinal)})
	return d
}

// Describe sends the descriptions, which are fixed when the collector is
// made.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.devices {
		d.metrics.sendDescs(ch)
	}
}

// Collect takes one snapshot of each source.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, d := range c.devices {
		out := emitter{d.metrics, ch}
		for _, p := range d.parts {
			p.collect(out)
		}
	}
}
