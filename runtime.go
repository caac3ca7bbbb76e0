package fencepost

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/cures"
	"github.com/fencepost-gpu/fencepost/internal/findings"
	"github.com/fencepost-gpu/fencepost/internal/health"
	"github.com/fencepost-gpu/fencepost/internal/line"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
	"github.com/fencepost-gpu/fencepost/internal/version"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
	"github.com/fencepost-gpu/fencepost/telemetry/profile"
)

// backend is what metrics ask the innermost layer.
type backend interface {
	metrics.Backend
	TurnPeaks(now time.Time)
	WindowPeaks() []readings.WindowPeak
	Measure() (soFar, end func() core.Peak)
	Released(yield func(core.Block) bool)
}

// pooled is a backend that allocates from a pool.
type pooled interface {
	core.Resource
	backend
	PoolStats() (driver.PoolStats, error)
	TrimPool(keep uint64) error
	SetShare(bytes uint64)
	Close(ctx context.Context) error
}

// Runtime is an open stack, and what a service holds of a device. All methods are safe
// for concurrent use. Work is done through [Runtime.Do], or by hand with
// [Runtime.Streams], [Runtime.Memory] and [Runtime.Launch]. What a service does not
// call, such as the two halves of a launch, is that of [Runtime.Core].
type Runtime struct {
	core       *core.Runtime
	driver     driver.Driver
	device     DeviceChoice
	gpu        bool
	judged     bool // by the oracle of a simulated device, which reports here
	streams    *cuda.StreamPool
	deviceWork deviceWork
	faults     faults
	kernelLog  kernelLog
	limits     memoryLimits
	memory     *cuda.MemoryManager
	pool       pooled // nil if the backend has none
	ops        deviceops.Device
	backend    backend
	watch      *metrics.MemoryWatch
	tags       *metrics.TagSeries
	ring       *logging.Ring
	log        *logging.Resource
	// logsReleases: the log says when the device has passed a free.
	logsReleases bool
	budget       *budget.Resource
	guard        *debugguard.Resource
	observer     *telemetry.Resource
	findings     *telemetry.Findings
	reporter     *findings.Reporter
	collector    *metrics.Collector
	// allocations counts what was ever allocated, for the profile.
	allocations *profile.Allocations
	incidents   *incident.Writer // nil if there is no folder for them
	dumps       *dump.Writer     // nil if there is no folder for them
	maxDump     int64            // bytes that a file of a dump has at most
	code        code
	hosts       []string // that NewHandler takes besides
	policy      GuardPolicy
	opened      time.Time
	health      *health.Watch
	refusals    *findings.Refusals
	line        line.Line // of jobs that wait for their reservation
	shortage    *cures.Room
	inside      inside
	learned     learned
	jobSpans    telemetry.Jobs
	jobHistory  jobHistory
	// built is set when nothing of the above changes any more.
	built   atomic.Bool
	closed  atomic.Bool
	timeout time.Duration
	// panicked is how often code that watches had panicked in this process before Open.
	panicked   uint64
	undo       []func(context.Context) error
	closing    atomic.Bool
	closeStep  atomic.Int32  // of closeSteps
	ended      chan struct{} // when Close has, with the two that follow
	leftover   core.Leftover
	closeError error
}

// Core is the stack without what Open builds around it: the two halves of a launch
// (PrepareUse, FinishUse, AbortUse), a launch with all that a request can say, the state
// of a block, errors seen outside the runtime, and the layers themselves. It makes a
// Runtime a [core.AnyRuntime]: functions that launch or allocate take it as it is. It is
// nil of a nil Runtime. Its Close closes the stack alone: use [Runtime.Close].
func (r *Runtime) Core() *core.Runtime {
	if r == nil {
		return nil
	}
	return r.core
}

// none stands for a nil Runtime where a method reads a field of it.
var none Runtime

func (r *Runtime) orNone() *Runtime {
	if r == nil {
		return &none
	}
	return r
}

// Driver is the device's driver, for enqueueing work of one's own.
func (r *Runtime) Driver() driver.Driver { return r.orNone().driver }

// Streams is the pool of stream leases.
func (r *Runtime) Streams() *cuda.StreamPool { return r.orNone().streams }

// Memory is the manager of typed memory.
func (r *Runtime) Memory() *cuda.MemoryManager { return r.orNone().memory }

// History is the log records in memory.
func (r *Runtime) History() *logging.Ring { return r.orNone().ring }

// Budget is the byte ledger, to change its limit or list its holders.
func (r *Runtime) Budget() *budget.Resource { return r.orNone().budget }

// Guard is the debug guard, to switch its mode or tags.
func (r *Runtime) Guard() *debugguard.Resource { return r.orNone().guard }

// Findings are the memory bugs seen so far.
func (r *Runtime) Findings() *telemetry.Findings { return r.orNone().findings }

// Incidents is the writer of incident files, nil if Config.Incidents names no
// folder.
func (r *Runtime) Incidents() *incident.Writer { return r.orNone().incidents }

// Operations counts the calls by operation and result.
func (r *Runtime) Operations() metrics.Operations {
	if r == nil {
		return metrics.Operations{}
	}
	return r.observer.Operations()
}

// TraceOf is how a log record of a request finds its way into ctx's trace: an
// exported span of it, and how much of that trace was exported, "full"
// or "event"; neither if nothing was. See [telemetry.Resource.TraceOf].
func (r *Runtime) TraceOf(ctx context.Context) (span core.SpanRef, extent string) {
	if r == nil {
		return core.SpanRef{}, ""
	}
	return r.observer.TraceOf(ctx)
}

// Collector exports the runtime's metrics; register it with a Prometheus
// registry.
func (r *Runtime) Collector() prometheus.Collector { return r.orNone().collector }

// DeviceMemory is what the device and its driver last said of its memory, at
// most a second ago while they answer. It makes no device call.
func (r *Runtime) DeviceMemory() metrics.DeviceMemory {
	if r == nil {
		return metrics.DeviceMemory{}
	}
	return r.watch.Last()
}

// ProfileHandler serves who holds the device's memory as a pprof profile: bytes
// and blocks by call stack, tag, stream and state, and what was ever
// allocated; see package [profile]. It is usually mounted at
// /debug/pprof/gpumem, where net/http/pprof is mounted too. It makes no device
// call.
func (r *Runtime) ProfileHandler() http.Handler {
	if r == nil {
		return http.NotFoundHandler()
	}
	return profile.Handler(profile.Source{Resource: r.core.Resource(), Allocations: r.allocations})
}

// PoolStats reads the memory pool, the driver's or our own. It makes a driver call. A
// Direct stack has no pool and answers zeros.
func (r *Runtime) PoolStats() (driver.PoolStats, error) {
	if err := r.refuseClosed("PoolStats"); err != nil || r.pool == nil {
		return driver.PoolStats{}, err
	}
	return r.pool.PoolStats()
}

// Drift compares the books with the pool. It is not known of a Direct stack, which has no
// pool. It makes driver calls, which [Runtime.DeviceMemory] does once a second in the
// background; see [cuda.AsyncResource.Drift].
func (r *Runtime) Drift() (readings.Drift, error) {
	if err := r.refuseClosed("Drift"); err != nil {
		return readings.Drift{}, err
	}
	return r.backend.Drift()
}

// TrimPool gives unused memory of the pool back to
// the device, until the pool holds at most keep bytes; see
// [cuda.AsyncResource.TrimPool]. It may block in the driver, and does not
// begin once ctx has ended. A Direct stack has no pool and refuses with an
// error that matches errors.ErrUnsupported.
func (r *Runtime) TrimPool(ctx context.Context, keep uint64) error {
	if err := cmp.Or(r.refuseClosed("TrimPool"), refuse.NoContext(ctx, "TrimPool")); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.pool == nil {
		return refuse.Unsupported("TrimPool", r.String(), "it allocates from no pool and gives memory back at every free; there is nothing to trim")
	}
	err := r.pool.TrimPool(keep)
	r.core.ReportSticky("TrimPool", err)
	return err
}

// SetPoolLimit changes what the runtime's own pool may hold of the device, in bytes; zero
// means no limit. What it holds beyond that is not taken back: see TrimPool. It
// does not block. Every other backend has no such pool and refuses with an error that
// matches errors.ErrUnsupported.
func (r *Runtime) SetPoolLimit(bytes uint64) error {
	if err := r.refuseClosed("SetPoolLimit"); err != nil {
		return err
	}
	own, ok := r.pool.(*cuda.PoolResource)
	if !ok {
		return refuse.Unsupported("SetPoolLimit", r.String(), "it has no pool of its own; limit the budget instead (Budget().SetLimit), or open with Resource pool")
	}
	own.SetLimit(bytes)
	return nil
}

func (r *Runtime) newCollector() (*metrics.Collector, error) {
	source := metrics.Source{
		Device:           r.core,
		Operations:       r.observer.Operations,
		Holders:          r.budget.Holders,
		Tags:             r.tags,
		Windows:          r.windowPeaks,
		Streams:          r.streams.Stats,
		Findings:         r.findings.CountsByTag,
		Waiting:          r.Waiting,
		LogDropped:       r.log.Dropped,
		RecordersDropped: r.core.DroppedRecorders,
		Health:           r.Health,
		StickyErrors:     r.core.StickyErrors,
		DeviceTimes:      r.deviceWork.times.Snapshot,
		Jobs:             r.deviceWork.jobs.Snapshot,
		Guard:            r.guardStats,
		Memory:           r.DeviceMemory,
		Limits:           r.MemoryLimits,
		History: func() metrics.HistoryStats {
			return metrics.HistoryStats{Records: r.ring.Total(), Capacity: r.ring.Cap()}
		},
		Info:    metrics.DeviceInfo{UUID: r.device.UUID, PCIBusID: r.device.PCIBusID, Host: hostName(), Name: r.device.Name, Kind: string(r.device.Kind)},
		Build:   metrics.BuildInfo{Version: version.Fencepost(), Stack: r.String(), DeviceKind: string(r.device.Kind), DeviceName: r.device.Name},
		Started: r.opened,
	}
	if r.incidents != nil {
		source.Incidents, source.Dumps = r.incidents.Stats, r.dumps.Stats
	}
	return metrics.NewCollector(source)
}

// hostName is the node's name where the environment has it, as a pod's may: a
// container's own name is not that of the machine whose GPU it shares.
func hostName() string {
	name, _ := os.Hostname() // empty where it is not known
	return cmp.Or(os.Getenv("NODE_NAME"), name)
}

// tagShare is the part of the time that looking at all tags may take: a program
// with a million of them at a time is looked at less often.
const tagShare = 50

// glance is how often the tags are looked at for the one moment at which most is
// live: it is no part of a second, so that work with a beat of its own is met in
// all its phases.
const glance = 47 * time.Millisecond

// keepMetrics keeps what metrics need to know between scrapes: the peaks of windows
// of time, the tags that have series, and what they held at the peak.
func (r *Runtime) keepMetrics() {
	var next, nextGlance time.Time
	r.onClose(every(time.Second, func(now time.Time) {
		r.backend.TurnPeaks(now)
		if now.Before(next) {
			return
		}
		r.budget.RenewTags() // before the look: what is used after it counts for the next
		r.tags.Look(now, r.budget.Holders())
		next = now.Add(tagShare * time.Since(now))
	}))
	r.onClose(every(glance, func(now time.Time) {
		if !now.Before(nextGlance) {
			r.tags.Glance(now, r.budget.Holders())
			nextGlance = now.Add(tagShare * time.Since(now))
		}
	}))
}

// every calls f at whole multiples of an interval, until the function that it
// returns is called, which waits for a call under way. f must not wait for the
// device.
func every(interval time.Duration, f func(now time.Time)) (end func(context.Context) error) {
	stop, ended := make(chan struct{}), make(chan struct{})
	usercode.Go("a look in the background", func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(interval - time.Duration(time.Now().UnixNano())%interval):
				f(time.Now())
			}
		}
	}, func() { close(ended) })
	return func(context.Context) error {
		close(stop)
		<-ended
		return nil
	}
}

func (r *Runtime) windowPeaks() []readings.WindowPeak {
	if r.closed.Load() { // no other call does it any more
		r.backend.TurnPeaks(time.Now())
	}
	return r.backend.WindowPeaks()
}

// watchMemory reads the device's memory and the limits that others set in the background, unless
// nothing is to be done there.
func (r *Runtime) watchMemory(cfg Config) {
	watch := metrics.MemoryWatchConfig{OnSticky: func(op string, err error) {
		if r.core.Health().Err == nil { // a loss that is known is not another
			r.core.ReportSticky(op, err)
		}
	}}
	if !cfg.inBackground() {
		watch.Interval = -1
	}
	var of metrics.Backend = r.backend
	if r.gpu {
		of = limited{r.backend, r}
	}
	r.watch = metrics.NewMemoryWatch(of, watch)
	r.onClose(r.watch.Close)
}
