package fencepost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/admit"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/health"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
)

// DeviceKind is a kind of device: what [Config.Device] asks for, and what
// [DeviceChoice] says that there is.
type DeviceKind string

// The kinds.
const (
	// Auto is a GPU if there is one that Resource can use, and the simulated
	// device otherwise; [Runtime.DeviceChoice] says which and why. A GPU that
	// is there and does not work is an error, and so is an ordinal that the
	// driver does not have.
	Auto DeviceKind = "auto"
	// CUDA is a GPU, through the CUDA driver; see package cuda/libcuda.
	CUDA DeviceKind = "cuda"
	// Sim is the simulated device.
	Sim DeviceKind = "sim"
)

// Backend is where the memory of [Config.Resource] comes from.
type Backend string

// The backends.
const (
	// Async is stream-ordered memory with fenced uses; see
	// [cuda.AsyncResource].
	Async Backend = "async"
	// Pool is stream-ordered memory with fenced uses from a pool of the
	// runtime's own, over memory that it maps; see [cuda.PoolResource].
	Pool Backend = "pool"
	// Direct is one driver allocation for each block, without fences, for
	// sanitizers; see [cuda.DirectResource].
	Direct Backend = "direct"
)

// GuardMode is what the debug guard does. A mode may have options behind it:
// "sample:1048576" guards a block in so many bytes on average, and "hunt:bisect+delay"
// hunts as [debugguard.HuntConfig] says. [debugguard.ParseMode] reads it, and the String
// of a [debugguard.Setting] is one.
type GuardMode string

// The modes, in the order of what they see and cost.
const (
	// GuardOff passes everything on.
	GuardOff GuardMode = "off"
	// GuardLedger keeps the books of blocks and uses on the host.
	GuardLedger GuardMode = "ledger"
	// GuardSample also guards the bytes of some blocks, chosen by bytes, and of every
	// block of a hunted tag.
	GuardSample GuardMode = "sample"
	// GuardHunt guards every block and keeps every stack.
	GuardHunt GuardMode = "hunt"
)

// GuardPolicy is what follows a finding.
type GuardPolicy string

// The policies.
const (
	// PolicyReport reports findings and goes on.
	PolicyReport GuardPolicy = "report"
	// PolicyRefuse also refuses a misuse in the call that a caller makes it
	// with, where there is such a call; see [debugguard.Advanced.Refuse].
	PolicyRefuse GuardPolicy = "refuse"
	// PolicyStop ends the process with exit code 70 upon a finding that is proven and
	// means that bytes were, or may have been, changed or read behind their owner's back:
	// a write or read outside a block's bounds or life, and an access that nothing orders.
	// Every result from then on may be wrong. Misuses that were refused (double, foreign
	// and stale handles), leaks, a want of memory, a lost device and the books stop nothing.
	// Before that the finding is written to its incident file, told to the logger and to
	// [Config.OnFinding], the history dumped, and log and spans are flushed: for at most
	// 2 seconds, and a quarter of a second each for the span before that and the last line
	// after it, whatever of that blocks.
	PolicyStop GuardPolicy = "stop"
)

// stopExitCode is the exit code of a process that PolicyStop ends.
const stopExitCode = 70

// Config says what [Open] builds. The zero Config is a runtime for ordinal 0
// with every default below. Each field that names an environment variable is
// overridden by it.
//
// Code that watches must not block. It is LogSinks, TracerProvider with its samplers, span
// processors and spans, Findings.Logger, OnFinding, OnHealth, OnStop and TelemetryLost. If it
// panics, the runtime writes an error record with the stack to slog.Default, at most one a minute
// for each kind, health has the reason telemetry_loss, and the operation goes on. Code that takes
// part does a share of the work: Layers, Driver, contexts, and the functions of jobs and launches.
// Its panic goes on to the caller; in the background it is written to slog.Default too. In either
// case, and after runtime.Goexit, nothing is lost.
type Config struct {
	// Device is Auto, CUDA or Sim. Empty means Auto. FENCEPOST_DEVICE.
	Device DeviceKind
	// Ordinal is the device's number, below [core.MaxOrdinals].
	// FENCEPOST_ORDINAL.
	Ordinal int
	// Driver, if not nil, is the device, and Device, Ordinal and Sim are not
	// looked at. It stays the caller's to close. One runtime at a time may
	// be open on a driver.
	Driver driver.Driver
	// Sim configures the simulated device; its Ordinal and OnFinding are set
	// by Open. Its Bytes are in FENCEPOST_SIM_BYTES, its UUID in
	// FENCEPOST_SIM_UUID.
	Sim sim.Config
	// Resource is Async, Pool or Direct. Empty means Pool where the device maps memory, and Async
	// elsewhere or if Async below is set and Pool is not. FENCEPOST_RESOURCE.
	Resource Backend
	// Streams is the largest number of stream leases at a time; 0 means
	// [cuda.DefaultMaxStreams]. FENCEPOST_STREAMS.
	Streams int
	// DeviceOrder queues waits for work that the host has seen done, too, for
	// runs under compute-sanitizer; see [cuda.StreamPoolConfig].
	// FENCEPOST_DEVICE_ORDER, 1 or 0.
	DeviceOrder bool
	// Async configures the backend if Resource is Async, and Pool if it is Pool; the other
	// is not looked at. Pool's Limit is in FENCEPOST_POOL_LIMIT, with an optional suffix KiB, MiB
	// or GiB, its TrimAfter in FENCEPOST_POOL_TRIM_AFTER, such as 30s.
	// With a negative ReapInterval nothing calls the device in the background: its
	// memory is read once, by Open, and the guard tells what it finds by later
	// operations alone.
	Async cuda.AsyncConfig
	Pool  cuda.PoolConfig
	// Budget is the most bytes of the device that may be charged, guard padding and quarantine
	// included. 0 means the simulated device's memory, and of a GPU what is free when Open has made
	// its context, less 256 MiB (or a 32nd of it, if that is less) for what the driver takes later.
	// On a GPU it is never above what others allow: see [Runtime.MemoryLimits]. A process that
	// shares the GPU with others should say its share: where a budget is set, pool and isolated
	// blocks hold no more of the device than that, see [cuda.PoolResource.SetShare].
	// FENCEPOST_BUDGET, with an optional suffix KiB, MiB or GiB.
	Budget uint64
	// Patience is how long a request for memory waits, instead of being refused, for the device
	// to come to memory that is freed, and no longer than its context. It waits only while the
	// runtime has such memory that may make room. 0 means one second; a negative value refuses at
	// once. FENCEPOST_PATIENCE, such as 500ms, or -1s.
	Patience time.Duration
	// OnShortage, if not nil, is asked for memory before a request, a reservation or a job in line is
	// refused or waits for the device: bytes is what it lacks memory for. It reports whether it gave
	// some back. It may free blocks, block, and call the runtime, with ctx: what it does with another
	// context may ask it again. It is called on the goroutine of the request, from several at a time,
	// and up to 16 times for each try of a request: with red zones, without, and in line.
	OnShortage func(ctx context.Context, bytes uint64) bool
	// ReservePasses is how many jobs may pass one that waits for a larger reservation ([Reserve])
	// than there is room for, each of whom fits. 0 serves strictly in the order of their coming.
	// FENCEPOST_RESERVE_PASSES.
	ReservePasses int
	// Learned is what is known of the peaks of jobs, for [Admit]; several runtimes may share one.
	// Nil is what LearnedFile has, or nothing. LearnedFile keeps it: Open reads the file, and once
	// a minute and Close add to it what was learned since. Several runtimes and processes may have
	// one file: what each of them learns is added, and runtimes of one process learn together. A
	// symbolic link stays one: the file that it leads to is written. A folder that is missing is
	// made. Empty keeps it in no file.
	//   - A damaged file is warned of, and written anew ([admit.ErrModelFile] says which are).
	//   - A file of another kind, such as a text, is refused, and stays as it is.
	//   - A path that is no regular file, or that cannot be written, is refused.
	//
	// FENCEPOST_LEARNED.
	Learned     *admit.Model
	LearnedFile string
	// Guard is the debug guard's mode, such as GuardHunt or "hunt:bisect+delay"; empty
	// means GuardSample. FENCEPOST_GUARD. See [Runtime.SwitchGuard] for changing it later.
	Guard GuardMode
	// GuardPolicy is what follows a finding: PolicyReport, PolicyRefuse or
	// PolicyStop. Empty means PolicyReport. FENCEPOST_GUARD_POLICY.
	GuardPolicy GuardPolicy
	// OnStop, if not nil, is called under PolicyStop in place of the exit of
	// the process, once, in a goroutine of its own, when the finding has been
	// delivered. It may close the runtime.
	OnStop func(core.Finding)
	// Faults is FaultsOff or FaultsNamed; empty means FaultsNamed where Guard is a hunt on a GPU, and FaultsOff elsewhere. FaultsNamed makes the
	// driver write a core dump, without memory, when a kernel faults, through a pipe in a folder that only this user can enter:
	// a finding then names kernel, launch, block, thread, address and whose memory that was, instead of what was in flight. It needs
	// Linux, a driver of CUDA 12.5 or the simulated device, and that nothing in the process has made a context on the device, or asked for dumps, before Open;
	// [GuardStatus] says whether that is so. Events have timing then, which costs a launch some 2 µs.
	// After a fault it takes up to 0.3 s longer until calls fail, seconds if all threads of the device were busy, and nothing is said to
	// be done meanwhile; see docs/guard.md. One runtime of a process names faults. FENCEPOST_FAULTS.
	Faults FaultMode
	// KernelLog reads the kernel's log, /dev/kmsg, when the device is lost: the finding then has the Xids that the driver wrote of the
	// device since Open, and what they mean. It comes up to a second later, after the call that met the loss returned. Linux only, with
	// CAP_SYSLOG or where kernel.dmesg_restrict is 0; where the log cannot be read [GuardStatus] says why, and nothing else
	// changes. FENCEPOST_KERNEL_LOG, 1 or 0.
	KernelLog bool
	// GuardConfig tunes the guard. Its Mode, Device, Memory, Findings, Events and OnStack
	// are set by Open, SampleBytes and Hunt also by Guard, and Refuse by
	// PolicyRefuse. Its HuntTags are in FENCEPOST_GUARD_TAGS, separated by
	// commas.
	GuardConfig debugguard.Config
	// Layers are layers of the program's own in the stack.
	Layers Layers
	// Incidents is the folder into which each finding is written as a JSON
	// file, and the history is dumped; empty means none are. FENCEPOST_INCIDENTS. See package
	// [incident].
	Incidents string
	// IncidentConfig says how many files there may be. Its Folder, Around and Failed
	// are set by Open.
	IncidentConfig incident.Config
	// DumpConfig says how often the history is dumped into that folder, upon a
	// finding, a storm of refusals and the loss of the device, and how many
	// dumps there may be. Its Folder and Source are set by Open. See package
	// [dump] and [Runtime.Dump].
	DumpConfig dump.Config
	// History is how many log records are kept in memory; 0 means
	// [logging.DefaultRingSize]. FENCEPOST_HISTORY.
	History int
	// LogLevel is which operations are logged.
	LogLevel logging.Level
	// LogSinks get every log record besides the history. They stay the
	// caller's to close.
	LogSinks []logging.Sink
	// TracerProvider makes spans; nil means none are made. NoRootSpans as
	// NoRoots in [telemetry.Config].
	TracerProvider trace.TracerProvider
	NoRootSpans    bool
	// TraceLevel is which operations become spans; see [telemetry.Level].
	// FENCEPOST_TRACE_LEVEL: off, launches or operations.
	TraceLevel telemetry.Level
	// TimeOneIn is of how many launches on a stream one is timed on the device, of those that are in no sampled
	// trace: for metrics, see [metrics.DeviceTimes]. 0 means 250, a negative number that only launches of sampled
	// traces are. FENCEPOST_TIME_ONE_IN.
	TimeOneIn int
	// TraceLayers makes a span of each layer that a traced operation passes
	// through, to see in which of them the time goes; see [telemetry.Probe].
	// It multiplies the spans. FENCEPOST_TRACE_LAYERS, 1 or 0.
	TraceLayers bool
	// Findings configures how findings are kept and logged.
	Findings telemetry.FindingsConfig
	// OnFinding, if not nil, gets each finding too. It must not block nor
	// call the runtime; [PolicyStop] stops the process all the same.
	OnFinding func(core.Finding)
	// OnHealth, if not nil, is told of each change of the runtime's health: of
	// its state, or of the reasons for it. It is called in a goroutine of the
	// runtime's, one call at a time; Close waits for it, so it must not close
	// the runtime itself. Findings.Logger gets a record of each change too.
	OnHealth func(core.Health)
	// HealthHold is how long a reason for degraded health holds after it was
	// last seen; 0 means 5 minutes.
	HealthHold time.Duration
	// TelemetryLost, if not nil, counts what was lost of the telemetry outside
	// the runtime, such as the spans that an exporter failed; what is lost from
	// Open on is a reason for degraded health. It is called by Open and then once
	// a second, and must not block.
	TelemetryLost func() uint64
	// Hosts are the names, without port, by which [NewHandler] may be asked
	// besides IP addresses, names without a dot, this machine's own, and those
	// of a cluster that end in .svc or .cluster.local: of a proxy that passes
	// its own name on, or of a machine that is scraped by its full name. One
	// that begins with a dot is every name below it, and "*" every name: then
	// any web page that can be led here by its name may read what is shown.
	// FENCEPOST_HOSTS, separated by commas.
	Hosts []string
	// CloseTimeout bounds Close when its context has no deadline; 0 means 30
	// seconds.
	CloseTimeout time.Duration
}

// Bounds that no program needs to pass, and beyond which a typing mistake
// would cost the machine's memory.
const (
	maxStreams = 1 << 16
	maxHistory = 1 << 24
)

// Check returns the error that [Open] would return for this configuration and
// the environment, whatever the machine has.
func (c Config) Check() error {
	if err := c.applyEnvironment(); err != nil {
		return err
	}
	_, err := c.withDefaults()
	return err
}

func (c Config) withDefaults() (Config, error) {
	c.Device = cmp.Or(c.Device, Auto)
	if c.Resource == "" && c.Async != (cuda.AsyncConfig{}) && c.Pool == (cuda.PoolConfig{}) {
		c.Resource = Async
	}
	c.Guard = cmp.Or(c.Guard, GuardSample)
	c.GuardPolicy = cmp.Or(c.GuardPolicy, PolicyReport)
	c.HealthHold = cmp.Or(c.HealthHold, health.DefaultHold)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, 30*time.Second)
	err := c.check()
	return c, err
}

func (c *Config) check() error {
	switch {
	case c.Device != Auto && c.Device != CUDA && c.Device != Sim:
		return invalid("Device", legible.Value(c.Device)+": say auto, cuda or sim")
	case c.Resource != "" && c.Resource != Async && c.Resource != Pool && c.Resource != Direct:
		return invalid("Resource", legible.Value(c.Resource)+": say async, pool or direct")
	case c.Ordinal < 0 || c.Ordinal >= core.MaxOrdinals:
		return invalid("Ordinal", fmt.Sprintf("%d does not lie in 0 to %d", c.Ordinal, core.MaxOrdinals-1))
	case c.Streams < 0 || c.Streams > maxStreams:
		return invalid("Streams", fmt.Sprintf("%d leases: say 1 to %d, or 0 for the default of %d", c.Streams, maxStreams, cuda.DefaultMaxStreams))
	case c.History < 0 || c.History > maxHistory:
		return invalid("History", fmt.Sprintf("%d records: say 1 to %d, or 0 for the default of %d", c.History, maxHistory, logging.DefaultRingSize))
	case c.Faults != "" && c.Faults != FaultsOff && c.Faults != FaultsNamed:
		return invalid("Faults", legible.Value(c.Faults)+": say off or name")
	case c.ReservePasses < 0:
		return invalid("ReservePasses", fmt.Sprintf("%d: say how many may pass, or 0", c.ReservePasses))
	case c.HealthHold < 0:
		return invalid("HealthHold", fmt.Sprintf("%v: say a time, or 0 for the default of %v", c.HealthHold, health.DefaultHold))
	case c.CloseTimeout < 0:
		return invalid("CloseTimeout", fmt.Sprintf("%v: say a time, or 0 for the default", c.CloseTimeout))
	}
	var bad *core.InvalidRequestError
	if _, err := debugguard.ParseMode(string(c.Guard)); errors.As(err, &bad) {
		return invalid("Guard", bad.Reason)
	}
	if c.GuardPolicy != PolicyReport && c.GuardPolicy != PolicyRefuse && c.GuardPolicy != PolicyStop {
		return invalid("GuardPolicy", legible.Value(c.GuardPolicy)+": say report, refuse or stop")
	}
	for _, h := range c.Hosts {
		if h == "" || strings.ContainsAny(h, "/: ") {
			return invalid("Hosts", legible.Value(h)+": say names without scheme and port, such as gpu.example.com, .example.com or *")
		}
	}
	return nil
}

// inBackground reports whether the device is called in the background.
func (c *Config) inBackground() bool {
	if c.Resource == Pool {
		return c.Pool.ReapInterval >= 0
	}
	return c.Async.ReapInterval >= 0
}
