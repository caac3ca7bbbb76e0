package metrics

import (
	"fmt"
	"runtime"
	"time"

	"github.com/fencepost-gpu/fencepost/core/readings"
)

var windowMetrics = family[[]readings.WindowPeak]{gauge("gpumem_memory_window_peak_bytes",
	"Highest live bytes, and highest outstanding ones (live, pending and quarantined together), padding included, in the last whole window of 15 or 60 seconds of the clock, or in the one under way if that is higher; or, with more than 64 streams or under load, up to a 64th or 32 MiB more. Windows end on a second.", "state", "window"), sendWindows}

func sendWindows(windows []readings.WindowPeak, out sender) {
	for _, w := range windows {
		length := fmt.Sprintf("%ds", w.Length/time.Second)
		out.count(w.Live, "live", length)
		out.count(w.Outstanding, "outstanding", length)
	}
}

var limitMetrics = family[[]readings.MemoryLimit]{gauge("gpumem_limit_bytes", "The most that this runtime may hold of the device by limits that others set, by who tells of them: cgroup (the controller dmem), nvml or mps. It is what the runtime holds, and what is left of the limit; of several the least. Left out where there is none.", "source"), sendLimits}

func sendLimits(limits []readings.MemoryLimit, out sender) {
	least := map[string]uint64{}
	for _, l := range limits {
		if before, ok := least[l.Source]; !ok || l.Allowed < before {
			least[l.Source] = l.Allowed
		}
	}
	for source, bytes := range least {
		out.count(bytes, source)
	}
}

// DeviceMemory is what the driver said of the device's memory when it was last
// asked, which no scrape does. All sizes are bytes.
type DeviceMemory struct {
	// Read is when Free, Total, Owned and Foreign were read; zero if they never
	// were, and then they are left out.
	Read time.Time
	// Free and Total are the device's. Owned is what the pool, isolated blocks
	// and direct ones have of it, Foreign what is neither free nor owned.
	Free, Total, Owned, Foreign uint64
	// DriftRead is when Drift was established, zero if it never was, and then
	// it is left out: always, on a device without a pool.
	DriftRead time.Time
	// Drift is what the ledger holds of the pool, less what the pool says that
	// it has handed out. It is zero unless one of them is wrong.
	Drift int64
}

var memoryMetrics = []family[DeviceMemory]{
	{gauge("gpumem_device_free_bytes", "Free memory of the device, as last read."), onceRead(func(m DeviceMemory) uint64 { return m.Free })},
	{gauge("gpumem_device_total_bytes", "Memory of the device, as last read."), onceRead(func(m DeviceMemory) uint64 { return m.Total })},
	{gauge("gpumem_device_held_bytes", "Memory of the device that this runtime holds, as last read: what the pool has reserved, what is mapped for isolated blocks, and direct blocks."), onceRead(func(m DeviceMemory) uint64 { return m.Owned })},
	{gauge("gpumem_device_foreign_bytes", "Used memory of the device that neither the pool, isolated blocks nor direct ones explain, as last read: other processes, contexts, modules, libraries and the driver's rounding."), onceRead(func(m DeviceMemory) uint64 { return m.Foreign })},
	{gauge("gpumem_device_read_timestamp_seconds", "When the device's memory was last read: a background reading a second, none in a scrape, none that failed."), func(m DeviceMemory, out sender) { out.instant(m.Read) }},
	{gauge("gpumem_drift_bytes", "Bytes that the ledger says the pool has handed out (live and quarantined as asked of the backend, and blocks given back whose free is not queued yet; isolated and pending ones are in neither), less what the pool says. Taken between two equal readings of the ledger with no call under way, so any value but 0 is a bug; as last established. Where these agree, of the runtime's own pool what is mapped less what its streams have of it, taken or free."), sendDrift},
	{gauge("gpumem_drift_read_timestamp_seconds", "When the drift was last established; it grows old while the device fails, and while allocations leave no moment for it."), func(m DeviceMemory, out sender) { out.instant(m.DriftRead) }},
}

// onceRead leaves out what was never read: it is not zero.
func onceRead(read func(DeviceMemory) uint64) func(DeviceMemory, sender) {
	return func(m DeviceMemory, out sender) {
		if !m.Read.IsZero() {
			out.count(read(m))
		}
	}
}

func sendDrift(m DeviceMemory, out sender) {
	if !m.DriftRead.IsZero() {
		out.send(float64(m.Drift))
	}
}

// DeviceInfo says which device it is, whatever number it has in this process.
// It does not change. What is not known is empty.
type DeviceInfo struct {
	// UUID is the same in every process that uses the device: "GPU-..." of a
	// GPU, "MIG-..." of an instance of one.
	UUID string
	// PCIBusID is where the device is in its host, such as "0000:3b:00.0".
	PCIBusID string
	// Host is the machine that the device is in.
	Host string
	// Name is such as "NVIDIA H200", Kind is "cuda" or "sim".
	Name, Kind string
}

var infoMetrics = family[DeviceInfo]{gauge("gpumem_device_info", "Which device it is; always 1. All processes on a GPU have the same uuid for it, whatever its number is to them.", "uuid", "pci_bus_id", "host", "device_name", "device_kind"), sendInfo}

func sendInfo(i DeviceInfo, out sender) { out.count(1, i.UUID, i.PCIBusID, i.Host, i.Name, i.Kind) }

// HistoryStats is the state of the history that is kept in memory.
type HistoryStats struct {
	// Records counts the records ever put, Capacity is how many are kept.
	Records  uint64
	Capacity int
}

var historyMetrics = []family[HistoryStats]{
	{counter("gpumem_history_records_total", "Records put into the history in memory."), whole(func(h HistoryStats) uint64 { return h.Records })},
	{gauge("gpumem_history_capacity", "Records that the history in memory can keep."), whole(func(h HistoryStats) uint64 { return uint64(h.Capacity) })},
}

// BuildInfo says what runs. It does not change while that runs.
type BuildInfo struct {
	// Version is Fencepost's, as the module system knows it.
	Version string
	// Stack names the layers, such as "telemetry(budget(async(sim:0)))".
	Stack string
	// DeviceKind is "cuda" or "sim", DeviceName such as "NVIDIA H200".
	DeviceKind, DeviceName string
}

var buildMetrics = family[BuildInfo]{gauge("gpumem_build_info", "What runs; always 1.", "version", "goversion", "stack", "device_kind", "device_name"), sendBuild}

func sendBuild(b BuildInfo, out sender) {
	out.count(1, b.Version, runtime.Version(), b.Stack, b.DeviceKind, b.DeviceName)
}

var startMetrics = family[time.Time]{gauge("gpumem_runtime_start_time_seconds", "When the runtime was opened, in seconds since 1970."), func(at time.Time, out sender) { out.instant(at) }}

var streamMetrics = []family[readings.StreamStats]{
	{gauge("gpumem_streams", "Streams by state: leased, idle in the pool, or adopted from callers.", "state"), sendStreams},
	{gauge("gpumem_streams_limit", "Streams that the pool may have."), whole(func(s readings.StreamStats) uint64 { return uint64(s.Max) })},
	{gauge("gpumem_streams_waiting", "Callers waiting for a stream."), whole(func(s readings.StreamStats) uint64 { return uint64(s.Waiting) })},
	{counter("gpumem_stream_acquisitions_total", "Stream leases granted."), whole(func(s readings.StreamStats) uint64 { return uint64(s.Acquires) })},
	{counter("gpumem_stream_refusals_total", "Stream leases refused or given up while waiting."), whole(func(s readings.StreamStats) uint64 { return uint64(s.Refused) })},
	{counter("gpumem_stream_wait_seconds_total", "Time that callers spent waiting for a stream."), func(s readings.StreamStats, out sender) { out.send(s.WaitTime.Seconds()) }},
	{gauge("gpumem_stream_oldest_lease_seconds", "Age of the stream lease that has been held longest, 0 if none is held."), func(s readings.StreamStats, out sender) { out.send(s.OldestAge.Seconds()) }},
}

func sendStreams(s readings.StreamStats, out sender) {
	out.count(uint64(s.Leased), "leased")
	out.count(uint64(s.Idle), "idle")
	out.count(uint64(s.Adopted), "adopted")
}
