package fencepost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/cures"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/findings"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/dump"
	"github.com/fencepost-gpu/fencepost/telemetry/incident"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
	"github.com/fencepost-gpu/fencepost/telemetry/profile"
)

// Open builds the default stack on a device: from the device outwards the
// backend, logging, the budget, the debug guard, and telemetry, with the layers of
// Config.Layers between them. The runtime must be closed. An error leaves nothing
// behind, nor does a panic of the program's code. Open may block on the driver; ctx
// is for its spans only. A FENCEPOST_ variable that is not known is warned of, with
// the nearest known name.
//
// A GPU has one runtime: a second Open of it is a [core.ErrInvalidRequest], by
// whatever ordinal or driver. Simulated devices are not shared: each Open makes
// one of its own, with memory, streams and an oracle of its own, also of an
// ordinal that is open, so that tests of one process need not know of each
// other. They show the same ordinal, so one registry and one [NewHandler] take
// only one of them. A program that opens an ordinal twice by mistake hears of it
// on a GPU; [Device] gives everybody the same runtime on both.
func Open(ctx context.Context, cfg Config) (*Runtime, error) {
	cfg.warnOfUnknown(os.Environ())
	if err := cfg.applyEnvironment(); err != nil {
		return nil, err
	}
	return open(ctx, cfg)
}

// open is Open without the environment.
func open(ctx context.Context, cfg Config) (rt *Runtime, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Runtime{opened: time.Now(), ended: make(chan struct{}), panicked: usercode.Panics(),
		tags: metrics.NewTagSeries(), timeout: cfg.CloseTimeout, hosts: cfg.Hosts, policy: cfg.GuardPolicy,
		findings: newCollection(cfg),
		ring:     logging.NewRing(cfg.History), logsReleases: cfg.LogLevel == logging.Uses}
	r.health = r.newHealthWatch(cfg)
	r.onClose(flushSpans(cfg)) // the last step of Close: all others may make spans
	undo := true
	defer func() { // also if code of the program's panics in a step, or ends the goroutine
		if undo {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.CloseTimeout)
			defer cancel()
			err = errors.Join(err, r.unwind(ctx))
		}
	}()
	if err := r.openIncidents(cfg); err != nil {
		return nil, err
	}
	if err := r.openDumps(cfg); err != nil {
		return nil, err
	}
	if err := r.openLearned(cfg); err != nil {
		return nil, err
	}
	r.openKernelLog(cfg)
	r.reporter = r.newReporter(cfg)
	r.onClose(r.closeKernelLog)
	r.onClose(r.reporter.Wait) // a dump of the GPU may have been read as late as here
	if err := r.build(cfg); err != nil {
		return nil, fmt.Errorf("opening device %d: %w", cfg.Ordinal, err)
	}
	undo = false
	r.built.Store(true)
	return r, nil
}

// newCollection traces findings where launches are traced.
func newCollection(cfg Config) *telemetry.Findings {
	if cfg.Findings.TracerProvider == nil && cfg.TraceLevel != telemetry.LevelOff {
		cfg.Findings.TracerProvider = cfg.TracerProvider
	}
	return telemetry.NewFindings(cfg.Findings)
}

// newReporter says where findings go: see package findings.
func (r *Runtime) newReporter(cfg Config) *findings.Reporter {
	to := findings.Config{Collection: r.findings, LookAtHealth: r.health.LookSoon, OnFinding: cfg.OnFinding,
		Incidents: r.incidents, Dumps: r.dumps, Stack: r.findingStack, Fault: r.faultDump}
	if r.kernelLog.log != nil {
		to.Xids = r.xids
	}
	if cfg.GuardPolicy == PolicyStop {
		to.Stop = &findings.StopConfig{Flushes: r.flushes(cfg), OnStop: cfg.OnStop, ExitCode: stopExitCode}
	}
	return findings.New(to)
}

// findingStack is what knows the blocks and streams of a finding.
func (r *Runtime) findingStack() (findings.Stack, bool) {
	if !r.built.Load() {
		return findings.Stack{}, false
	}
	return findings.Stack{Base: core.Base(r.core.Resource()), Released: r.backend.Released, Guard: r.guard,
		Streams: r.streams, Judged: r.judged, Unmaps: r.guard.Setting().Unmap ||
			r.pool == nil, Enqueued: r.faults.enqueued}, true
}

// flushes are what the program brought that keeps records back, and the dump of the
// history.
func (r *Runtime) flushes(cfg Config) (all []func(context.Context) error) {
	for _, sink := range cfg.LogSinks {
		if sink != nil {
			all = append(all, sink.Flush)
		}
	}
	if provider, ok := cfg.TracerProvider.(interface{ ForceFlush(context.Context) error }); ok {
		all = append(all, provider.ForceFlush)
	}
	if r.dumps != nil {
		all = append(all, func(ctx context.Context) error {
			_, err := r.dumps.Now(ctx, dump.Finding)
			return err
		})
	}
	return all
}

func (r *Runtime) build(cfg Config) error {
	if err := r.openDriver(cfg); err != nil {
		return err
	}
	props, err := r.driver.Properties()
	if err != nil {
		return err
	}
	if cfg.Resource == "" {
		cfg.Resource = Async
		if props.MapGranularity != 0 {
			cfg.Resource = Pool
		}
	}
	for _, step := range []func(Config) error{r.openStreams, r.buildStack, r.finishBuild, r.watchHealth} {
		if err := step(cfg); err != nil {
			return err
		}
	}
	return nil
}

// onClose notes how to undo a step; the last step is undone first.
func (r *Runtime) onClose(undo func(context.Context) error) { r.undo = append(r.undo, undo) }

// unwind undoes all steps, also those behind one in which the program's code panics.
func (r *Runtime) unwind(ctx context.Context) error {
	var errs []error
	steps := r.undo
	r.undo = nil
	slices.Reverse(steps)
	usercode.All(steps, func(undo func(context.Context) error) { errs = append(errs, undo(ctx)) })
	return errors.Join(errs...)
}

func (r *Runtime) openStreams(cfg Config) (err error) {
	lost := func(op string, err error) {
		if r.built.Load() { // or else Open fails
			r.core.ReportSticky(op, err)
		}
	}
	traced := telemetry.Config{TracerProvider: cfg.TracerProvider, Level: cfg.TraceLevel, NoRoots: cfg.NoRootSpans, Findings: r.findings}
	streams := cuda.StreamPoolConfig{Max: cfg.Streams, DeviceOrder: cfg.DeviceOrder, OnSticky: lost, BeginStep: telemetry.Steps(traced, r.driver.Ordinal())}
	r.jobSpans = telemetry.NewJobs(traced, r.driver.Ordinal())
	streams.DeviceWork = telemetry.DeviceSpans(traced, r.driver.Ordinal(), &r.deviceWork)
	streams.TimeOneIn = cmp.Or(cfg.TimeOneIn, defaultTimeOneIn)
	// The oracle of a simulated device, and a core dump of a GPU, know addresses only.
	streams.RememberReleased = cfg.Driver == nil && !r.gpu || r.faults.watch != nil
	if r.streams, err = cuda.NewStreamPool(r.driver, streams); err != nil {
		return err
	}
	r.onClose(r.streams.Close)
	return nil
}

func (r *Runtime) base(cfg Config) (core.Resource, error) {
	var base pooled
	var err error
	switch cfg.Resource {
	case Direct:
		direct := cuda.NewDirectResource(r.driver)
		r.backend = direct
		return direct, nil
	case Pool:
		base, err = cuda.NewPoolResource(r.driver, r.streams, cfg.Pool)
	default:
		base, err = cuda.NewAsyncResource(r.driver, r.streams, cfg.Async)
	}
	if e, ok := errors.AsType[*core.InvalidRequestError](err); ok && cfg.Resource == Pool && e.Field == "Limit" {
		return nil, invalid("Pool.Limit", e.Reason)
	}
	if err != nil {
		return nil, err
	}
	r.pool, r.backend = base, base
	r.onClose(base.Close)
	return base, nil
}

func (r *Runtime) buildStack(cfg Config) error {
	base, err := r.base(cfg)
	if err != nil {
		return err
	}
	r.allocations = profile.NewAllocations(base)
	own, bounds, err := r.budgetLimit(cfg)
	if err != nil {
		return err
	}
	guard, err := r.guardConfig(cfg, bounds.limit(own))
	if err != nil {
		return err
	}
	layers := []core.Layer{
		probe(cfg, telemetry.LayerDriver),
		func(up core.Resource) (core.Resource, error) {
			r.log, err = logging.New(up, logging.Config{Level: cfg.LogLevel, Sinks: append([]logging.Sink{r.ring}, cfg.LogSinks...)})
			r.deviceWork.log, r.deviceWork.most = r.log, max(1, r.ring.Cap()/historyPerWork)
			return r.log, err
		},
		probe(cfg, telemetry.LayerLog),
		func(up core.Resource) (core.Resource, error) {
			// its refusals are told by the guard's Events: see package cures
			if r.budget, err = budget.New(up, budget.Config{Limit: own, OnTag: r.tags.Used, OnShare: r.setShare}); err != nil {
				return nil, err
			}
			r.budget.SetBounds(bounds.available, bounds.others, bounds.by)
			return r.budget, nil
		},
		probe(cfg, telemetry.LayerBudget),
	}
	layers = appendOwn(layers, cfg.Layers.AroundBudget)
	layers = append(layers,
		func(up core.Resource) (core.Resource, error) {
			r.refusals = findings.NewRefusals(r.log, func(ctx context.Context, e oplog.Event) (core.SpanRef, bool) { return r.observer.Refused(ctx, e) })
			guard.Advanced.Events = r.refusals
			r.guard, err = debugguard.New(up, guard)
			return r.guard, err
		},
		probe(cfg, telemetry.LayerGuard))
	layers = appendOwn(layers, cfg.Layers.AroundGuard)
	layers = append(layers, func(up core.Resource) (core.Resource, error) {
		r.observer, err = telemetry.NewResource(up, telemetry.Config{TracerProvider: cfg.TracerProvider, Level: cfg.TraceLevel, NoRoots: cfg.NoRootSpans, Findings: r.findings})
		return r.observer, err
	})
	top, err := core.Chain(base, layers...)
	if err != nil {
		return err
	}
	r.shortage = r.budget.Path().Room()
	r.shortage.Configure(func(s *cures.Setup) { s.Program = cfg.OnShortage })
	if err := cfg.Layers.check(top, base); err != nil {
		return err
	}
	r.onClose(r.guard.Close)
	r.core, err = core.NewRuntime(top, func(f core.Finding) {
		r.line.Wake() // a lost device gives no memory any more
		r.reporter.Report(f)
	})
	return err
}

// probe shows what passes into a layer, if that was asked for. A nil layer is
// not built.
func probe(cfg Config, layer string) core.Layer {
	if !cfg.TraceLayers || cfg.TracerProvider == nil || cfg.TraceLevel == telemetry.LevelOff {
		return nil
	}
	return func(up core.Resource) (core.Resource, error) {
		return telemetry.NewProbe(up, layer, cfg.TracerProvider)
	}
}

// defaultTimeOneIn is [Config.TimeOneIn] where that is zero.
const defaultTimeOneIn = 250

func (r *Runtime) finishBuild(cfg Config) (err error) {
	r.line.Passes = cfg.ReservePasses
	r.line.OnWaiters = func(waiting bool) {
		if waiting {
			r.budget.NotifyRoom(r.line.Wake)
		} else {
			r.budget.NotifyRoom(nil)
		}
	}
	r.watchMemory(cfg)
	r.keepMetrics()
	if r.memory, err = cuda.NewMemoryManager(r.driver, r.streams, r); err != nil {
		return err
	}
	if r.collector, err = r.newCollector(); err != nil {
		return err
	}
	return nil
}

// openIncidents is the first step of Open and so undone last: closing the rest
// makes findings too.
func (r *Runtime) openIncidents(cfg Config) error {
	if cfg.Incidents == "" {
		return nil
	}
	settings := cfg.IncidentConfig
	settings.Folder, settings.Around, settings.Failed = cfg.Incidents, r.around, r.findings.IncidentFailed
	w, err := incident.NewWriter(settings)
	if err != nil {
		return cannotWrite("IncidentConfig", err)
	}
	r.incidents = w
	r.onClose(deadline.AtLeastAMoment(w.Close))
	return nil
}

// cannotWrite says which field is wrong of those that a writer of files was made from.
func cannotWrite(config string, err error) error {
	if e, ok := errors.AsType[*core.InvalidRequestError](err); ok {
		return invalid(config, e.Field+": "+e.Reason)
	}
	return invalid("Incidents", fmt.Sprintf("%v: name a folder that this process may write to", err))
}

// around is what surrounds a finding, as far as it is known.
func (r *Runtime) around(ctx context.Context, f core.Finding) iter.Seq[incident.Surroundings] {
	if !r.built.Load() {
		return slices.Values([]incident.Surroundings{{Incomplete: "the runtime was not open yet"}})
	}
	return findings.Around{
		Device:  incident.Device{Kind: string(r.device.Kind), Ordinal: r.device.Ordinal, Name: r.device.Name, UUID: r.device.UUID, PCIBusID: r.device.PCIBusID},
		Stack:   r.String(),
		Records: r.recordsAround,
		Memory:  r.Stats,
		Guard: func() incident.Guard {
			status := r.GuardStatus()
			return incident.Guard{Mode: string(status.Setting), Policy: string(status.Policy), HuntTags: status.HuntTags, Numbers: status.Numbers}
		},
	}.Of(ctx, f)
}

// openDumps comes before what they are of, and so is undone after it: closing
// that makes findings too.
func (r *Runtime) openDumps(cfg Config) error {
	if cfg.Incidents == "" {
		return nil
	}
	settings := cfg.DumpConfig
	settings.Folder, settings.Source = cfg.Incidents, r.frozenHistory
	w, err := dump.NewWriter(settings)
	if err != nil {
		return cannotWrite("DumpConfig", err)
	}
	r.dumps, r.maxDump = w, cmp.Or(settings.MaxBytes, dump.DefaultMaxBytes)
	r.onClose(deadline.AtLeastAMoment(w.Close))
	return nil
}

// flushSpans has the tracer provider export its queue, in a moment of its own. A program may give
// Close and the provider's Shutdown one context, and a job that does not end uses that up. Spans
// that are not exported stay queued, so it returns no error.
func flushSpans(cfg Config) func(context.Context) error {
	return func(ctx context.Context) error {
		provider, ok := cfg.TracerProvider.(interface{ ForceFlush(context.Context) error })
		if !ok {
			return nil
		}
		moment, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline.LastMoment)
		defer cancel()
		_ = deadline.Within(moment, func() (err error) {
			// a flush that is broken off loses its batch
			usercode.Call("the tracer provider", func() { err = provider.ForceFlush(context.WithoutCancel(ctx)) })
			return err
		})
		return nil
	}
}

// Close ends the runtime. From now on new work is refused: jobs, leases, allocations,
// reservations and launches. What is out is waited for: jobs under way and other leases until
// ctx ends (or Config.CloseTimeout, if ctx has no deadline), then blocks and open launches as
// [core.Runtime.Close] does. Close waits for the device to pass what is queued, reports what was
// never given back, with tags and stacks, and closes the device. Leases that are still out are
// named in the error. When ctx ends first, Close takes a quarter of a second more to drain and
// as much to give up, up to a second for each step whose call of the driver does not return, and
// a quarter to write incidents, for a Config.OnHealth that does not return, and to have
// Config.TracerProvider export what it has queued, if that has a ForceFlush.
//
// Two seconds after the end of ctx Close returns in any case, also if code of the program that it
// calls does not return: a log sink, a logger, a sampler, a span processor, Config.OnFinding. The
// error then names that code and what is yet to be done. The rest goes on in the background, and
// the device stays taken until it is done. A panic in a layer is logged, and an error of Close. So
// is runtime.Goexit in any of the program's code. A panic in code that watches is logged alone, as
// [Config] says. A second Close returns what the first did, and waits for it until ctx ends, or
// for 10 seconds longer than Config.CloseTimeout. From then on every method that would call the
// device is refused with an error that matches [core.ErrClosed], however Close ended.
//
// A service shuts its server down first, so that requests under way finish what they
// have still to allocate and launch, and then the runtime.
func (r *Runtime) Close(ctx context.Context) (core.Leftover, error) {
	if r == nil {
		return core.Leftover{}, r.refuseClosed("Close")
	}
	if err := refuse.NoContext(ctx, "Close"); err != nil {
		return core.Leftover{}, err
	}
	if !r.closing.CompareAndSwap(false, true) {
		return r.awaitClosed(ctx)
	}
	dated, cancel := ctx, func() {}
	if _, bounded := ctx.Deadline(); !bounded {
		dated, cancel = context.WithTimeout(ctx, r.timeout)
		ctx = undated{dated}
	}
	go func() {
		defer cancel()
		pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels(closeLabel, r.closeID())))
		usercode.Call("what Close calls", func() { r.close(ctx, dated) })
	}()
	err := deadline.Await(dated, r.ended)
	if err == nil {
		return r.leftover, r.closeError
	}
	select {
	case <-r.ended:
		return r.leftover, r.closeError
	case <-time.After(closeGrace):
		return core.Leftover{}, r.unended("Close goes on in the background, and a second Close waits for it", err)
	}
}

// closeGrace is how long Close waits for its steps when its context has ended. The steps are
// bounded, unless code of the program does not return.
const closeGrace = 2 * time.Second

// closeLabel is the profiler's label of goroutines that close a runtime; its value is the
// runtime's.
const closeLabel = "fencepost.close"

func (r *Runtime) closeID() string { return fmt.Sprintf("%p", r) }

// closeSteps are the steps of Close, in order.
var closeSteps = []string{"wait for jobs and leases", "wait for the device and report leaks", "close the device"}

// unended is the error of a Close that is not at its end: it says what is yet to be done, and in
// which code of the program it is.
func (r *Runtime) unended(what string, err error) error {
	where := ""
	if in := usercode.Standing(closeLabel, r.closeID()); in != "" {
		where = ": it is in " + in
	}
	return fmt.Errorf("%s%s; it has yet to %s: %w", what, where,
		strings.Join(closeSteps[r.closeStep.Load():], ", "), err)
}

// awaitClosed waits for the Close that is under way. Its caller may be code that this Close calls.
func (r *Runtime) awaitClosed(ctx context.Context) (core.Leftover, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		limited, cancel := context.WithTimeout(ctx, r.timeout+othersClose)
		defer cancel()
		ctx = limited
	}
	if err := deadline.Await(ctx, r.ended); err != nil {
		return core.Leftover{}, r.unended("another call of Close is under way", err)
	}
	return r.leftover, r.closeError
}

// othersClose is how much longer than [Config.CloseTimeout] a second Close without a deadline waits
// for the first, which takes some moments beyond its timeout.
const othersClose = 10 * time.Second

// errBrokenOff is what is said of a Close in which the program's code did not return.
var errBrokenOff = errors.New("Close was broken off: code of the program that it called panicked, or called runtime.Goexit; the rest was closed")

// close does all steps, whatever happens in one of them. dated is ctx with a deadline in any case.
func (r *Runtime) close(ctx, dated context.Context) {
	errs := []error{errBrokenOff, nil, nil}
	defer func() {
		r.closeError = r.withoutEchoes(errors.Join(errs...))
		close(r.ended)
	}()
	defer func() {
		r.closeStep.Store(2)
		errs[2] = r.giveUp(dated)
	}()
	r.closed.Store(true)
	r.core.BeginClose()
	r.line.Wake() // those who wait are refused
	r.streams.BeginClose()
	_ = deadline.Poll(dated, func() (bool, error) {
		return len(r.streams.Leases()) == 0 || r.core.Health().Err != nil, nil // those that stay out are named below
	})
	r.closeStep.Store(1)
	r.leftover, errs[1] = r.core.Close(ctx)
	errs[0] = nil
}

// undated is a context that ends but does not say when: the caller granted no time.
type undated struct{ context.Context }

func (undated) Deadline() (end time.Time, ok bool) { return }

// refuseClosed is the error of what calls the device from when Close begins.
func (r *Runtime) refuseClosed(op string) error {
	if r == nil {
		return refuse.Nil(op, "runtime", "open one, and look at the error of Open")
	}
	if r.closed.Load() {
		return fmt.Errorf("%s refused: the runtime is %w", op, core.ErrClosed)
	}
	return nil
}

// giveUp undoes Open's steps while ctx lasts, and for a moment in any case.
func (r *Runtime) giveUp(ctx context.Context) error {
	if end, _ := ctx.Deadline(); ctx.Err() != nil || time.Until(end) < deadline.LastMoment {
		moment, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline.LastMoment)
		defer cancel()
		return r.unwind(moment)
	}
	return r.unwind(ctx)
}

// withoutEchoes returns err, or nothing but the sticky error itself on a lost
// device, where every step of the end fails in the same way.
func (r *Runtime) withoutEchoes(err error) error {
	if !errors.Is(err, core.ErrSticky) {
		return err
	}
	r.core.ReportSticky("Close", firstSticky(err)) // if it was lost as late as here
	if lost := r.Health().Err; lost != nil {
		return lost
	}
	return err
}

// firstSticky is the first driver's error of a lost device that err is or wraps; nil if
// there is none.
func firstSticky(err error) error {
	switch e := any(err).(type) { // as errors.As walks
	case *core.DriverError:
		if e.Sticky {
			return e
		}
	case interface{ Unwrap() error }:
		return firstSticky(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			if first := firstSticky(one); first != nil {
				return first
			}
		}
	}
	return nil
}
