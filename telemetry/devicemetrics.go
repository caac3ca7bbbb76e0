package telemetry

import (
	"runtime"
	"time"
)

// DeviceMemory is what the driver said of the device's memory when it was last
// asked, which no scrape does. All sizes are bytes.
type DeviceMemory struct {
	// Read is when Free, Total, Held and Foreign were read; zero if they never
	// were, and then they are left out.
	Read time.Time
	// Free and Total are the device's. Held is what the pool, isolated blocks
	// and direct ones have of it, Foreign what is neither free nor held.
	Free, Total, Held, Foreign uint64
	// DriftRead is when Drift was established, zero if it never was, and then
	// it is left out: always, on a device without a pool.
	DriftRead time.Time
	// Drift is what the ledger holds of the pool, less what the pool says that
	// it has handed out. It is zero unless one of them is wrong.
	Drift int64
}

// HistoryStats is the state of the history that is kept in memory.
type HistoryStats struct {
	// Records counts the records ever put, Capacity is how many are kept.
	Records  uint64
	Capacity int
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

var (
	deviceMetrics = []definition{
		{name: MetricDeviceFreeBytes, kind: gauge, help: "Free memory of the device, as last read."},
		{name: MetricDeviceTotalBytes, kind: gauge, help: "Memory of the device, as last read."},
		{name: MetricDeviceHeldBytes, kind: gauge, help: "Memory of the device that this runtime holds, as last read: what the driver's pool has reserved, what is mapped for isolated blocks, and direct blocks."},
		{name: MetricDeviceForeignBytes, kind: gauge, help: "Used memory of the device that neither the driver's pool, isolated blocks nor direct ones explain, as last read: other processes, contexts, modules, libraries and the driver's rounding."},
		{name: MetricDeviceReadTimestamp, kind: gauge, help: "When the device's memory was last read: a background reading a second, none in a scrape, none that failed."},
		{name: MetricDriftBytes, kind: gauge, help: "Bytes that the ledger says the driver's pool has handed out (live and quarantined as asked of the driver, and blocks given back whose free is not queued yet; isolated and pending ones are in neither), less what the pool says. Taken between two equal readings of the ledger with no call under way, so any value but 0 is a bug; as last established."},
		{name: MetricDriftReadTimestamp, kind: gauge, help: "When the drift was last established; it grows old while the device fails, and while allocations leave no moment for it."},
	}
	historyMetrics = []definition{
		{name: MetricHistoryRecords, kind: counter, help: "Records put into the history in memory."},
		{name: MetricHistoryCapacity, kind: gauge, help: "Records that the history in memory can keep."},
	}
	buildMetrics = []definition{
		{name: MetricBuildInfo, kind: gauge, labels: []string{"version", "goversion", "stack", "device_kind", "device_name"}, help: "What runs; always 1."},
	}
	startMetrics = []definition{
		{name: MetricStartTime, kind: gauge, help: "When the runtime was opened, in seconds since 1970."},
	}
)

func (s Source) collectMemory(out emitter) {
	m := s.Memory()
	if !m.Read.IsZero() {
		out.send(MetricDeviceFreeBytes, m.Free)
		out.send(MetricDeviceTotalBytes, m.Total)
		out.send(MetricDeviceHeldBytes, m.Held)
		out.send(MetricDeviceForeignBytes, m.Foreign)
		out.sendTime(MetricDeviceReadTimestamp, m.Read)
	}
	if !m.DriftRead.IsZero() {
		out.sendFloat(MetricDriftBytes, float64(m.Drift))
		out.sendTime(MetricDriftReadTimestamp, m.DriftRead)
	}
}

func (s Source) collectHistory(out emitter) {
	st := s.History()
	out.send(MetricHistoryRecords, st.Records)
	out.send(MetricHistoryCapacity, uint64(st.Capacity))
}

func (s Source) collectBuild(out emitter) {
	b := s.Build
	out.send(MetricBuildInfo, 1, b.Version, runtime.Version(), b.Stack, b.DeviceKind, b.DeviceName)
}
