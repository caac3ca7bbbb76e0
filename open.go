package fencepost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/findings"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/profile"
)

// Open builds the default stack on a device: from the device outwards the
// backend, logging, the budget, the debug guard, and telemetry. The runtime
// must be closed. An error leaves nothing behind. Open may block on the
// driver; ctx is for its spans only. A FENCEPOST_ variable that is not known is
// warned of; see [UnknownVariables].
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
func open(ctx context.Context, cfg Config) (*Runtime, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Runtime{opened: time.Now(), tags: telemetry.NewTagSeries(), timeout: cfg.CloseTimeout, policy: cfg.GuardPolicy, findings: newCollection(cfg),
		ring: logging.NewRing(cfg.History), logsReleases: cfg.LogLevel == logging.Uses}
	r.health = r.newHealthWatch(cfg)
	if err := r.openIncidents(cfg); err != nil {
		return nil, err
	}
	if err := r.openDumps(cfg); err != nil {
		return nil, errors.Join(err, r.unwind(ctx))
	}
	r.reporter = r.newReporter(cfg)
	if err := r.build(cfg); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.CloseTimeout)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("opening device %d: %w", cfg.Ordinal, err), r.unwind(ctx))
	}
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
		Incidents: r.incidents, Dumps: r.dumps, Stack: r.findingStack}
	if cfg.GuardPolicy == PolicyStop {
		to.Stop = &findings.StopConfig{Flushes: flushes(cfg), OnStop: cfg.OnStop, ExitCode: StopExitCode}
	}
	return findings.New(to)
}

// findingStack is what knows the blocks and streams of a finding.
func (r *Runtime) findingStack() (findings.Stack, bool) {
	if !r.built.Load() {
		return findings.Stack{}, false
	}
	return findings.Stack{Base: core.Base(r.Resource()), Guard: r.guard, Streams: r.streams}, true
}

// flushes are what the program brought that keeps records back.
func flushes(cfg Config) (all []func(context.Context) error) {
	for _, sink := range cfg.LogSinks {
		if sink != nil {
			all = append(all, sink.Flush)
		}
	}
	if provider, ok := cfg.TracerProvider.(interface{ ForceFlush(context.Context) error }); ok {
		all = append(all, provider.ForceFlush)
	}
	return all
}

func (r *Runtime) build(cfg Config) error {
	for _, step := range []func(Config) error{r.openDriver, r.openCode, r.openStreams, r.buildStack, r.finishBuild, r.watchHealth} {
		if err := step(cfg); err != nil {
			return err
		}
	}
	return nil
}

// onClose notes how to undo a step; the last step is undone first.
func (r *Runtime) onClose(undo func(context.Context) error) { r.undo = append(r.undo, undo) }

func (r *Runtime) unwind(ctx context.Context) error {
	var errs []error
	for _, undo := range slices.Backward(r.undo) {
		errs = append(errs, undo(ctx))
	}
	r.undo = nil
	return errors.Join(errs...)
}

func (r *Runtime) openStreams(cfg Config) (err error) {
	lost := func(op string, err error) {
		if r.built.Load() { // or else Open fails
			r.ReportSticky(op, err)
		}
	}
	steps := telemetry.NewSteps(telemetry.Config{TracerProvider: cfg.TracerProvider, Level: cfg.TraceLevel}, r.driver.Ordinal())
	if r.streams, err = cuda.NewStreamPool(r.driver, cuda.StreamPoolConfig{Max: cfg.Streams, DeviceOrder: cfg.DeviceOrder, OnSticky: lost, Steps: steps}); err != nil {
		return err
	}
	r.onClose(r.streams.Close)
	return nil
}

func (r *Runtime) base(cfg Config) (core.Resource, error) {
	if cfg.Resource == Direct {
		direct := cuda.NewDirectResource(r.driver)
		r.holder = direct
		return direct, nil
	}
	async, err := cuda.NewAsyncResource(r.driver, r.streams, cfg.Async)
	if err != nil {
		return nil, err
	}
	r.async, r.holder = async, async
	r.onClose(async.Close)
	return async, nil
}

func (r *Runtime) buildStack(cfg Config) error {
	base, err := r.base(cfg)
	if err != nil {
		return err
	}
	r.allocations = profile.NewAllocations(base)
	limit, err := r.budgetLimit(cfg)
	if err != nil {
		return err
	}
	guard, err := r.guardConfig(cfg, limit)
	if err != nil {
		return err
	}
	top, err := core.Chain(base,
		probe(cfg, telemetry.LayerDriver),
		func(up core.Resource) (core.Resource, error) {
			r.log, err = logging.New(up, logging.Config{Level: cfg.LogLevel, Sinks: append([]logging.Sink{r.ring}, cfg.LogSinks...)})
			return r.log, err
		},
		probe(cfg, telemetry.LayerLog),
		func(up core.Resource) (core.Resource, error) {
			r.budget, err = budget.New(up, budget.Config{Limit: limit, OnTag: r.tags.Used}) // the guard reports refusals: it may cure them
			return r.budget, err
		},
		probe(cfg, telemetry.LayerBudget),
		func(up core.Resource) (core.Resource, error) {
			r.refusals = findings.NewRefusals(r.log, func(ctx context.Context, e core.Event) (core.SpanRef, bool) { return r.observer.Refused(ctx, e) })
			guard.Events = r.refusals
			r.guard, err = debugguard.New(up, guard)
			return r.guard, err
		},
		probe(cfg, telemetry.LayerGuard),
		func(up core.Resource) (core.Resource, error) {
			r.observer, err = telemetry.NewResource(up, telemetry.Config{TracerProvider: cfg.TracerProvider, Level: cfg.TraceLevel, NoRoots: cfg.NoRootSpans, Findings: r.findings})
			return r.observer, err
		},
	)
	if err != nil {
		return err
	}
	r.onClose(r.guard.Close)
	r.Runtime, err = core.NewRuntime(core.Parts{Resource: top, Findings: r.reporter})
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

func (r *Runtime) guardConfig(cfg Config, limit uint64) (debugguard.Config, error) {
	g := cfg.GuardConfig
	setting, err := debugguard.ParseMode(cfg.Guard)
	if err != nil {
		return g, err
	}
	g.Mode, g.Findings, g.OnStack = setting.Mode, r.reporter, r.allocations.Sampled
	g.Refuse = g.Refuse || cfg.GuardPolicy == PolicyRefuse
	if setting.SampleBytes > 0 {
		g.SampleBytes = setting.SampleBytes
	}
	g.Hunt.Bisect = g.Hunt.Bisect || setting.Bisect
	g.Hunt.Unmap = g.Hunt.Unmap || setting.Unmap
	if setting.Delay && g.Hunt.Delay == 0 {
		g.Hunt.Delay = debugguard.DefaultDelay
	}
	if cfg.Async.ReapInterval < 0 {
		g.UpkeepInterval = -1
	}
	if err := r.fitQuarantine(&g, limit); err != nil {
		return g, err
	}
	if r.ops, err = cuda.NewDeviceOps(r.driver, r.streams, guardkernels.Image()); err != nil {
		return g, err
	}
	r.onClose(func(ctx context.Context) error { return deadline.Within(ctx, func() error { return r.ops.Close(ctx) }) })
	g.Device = r.ops
	return g, nil
}

// fitQuarantine sizes a quarantine that nobody has sized by the device's
// memory, or by the budget if that is less: quarantine is charged against it, and
// one sized by a large device would fill a small budget.
func (r *Runtime) fitQuarantine(g *debugguard.Config, limit uint64) error {
	if g.QuarantineBytes > 0 {
		return nil
	}
	_, total, err := r.driver.MemInfo()
	if err != nil {
		return err
	}
	sample, hunt := debugguard.QuarantineFor(min(total, limit))
	g.QuarantineBytes, g.Hunt.QuarantineBytes = sample, cmp.Or(g.Hunt.QuarantineBytes, hunt)
	return nil
}

// budgetHeadroom is what a GPU's default budget leaves free: memory that the
// driver takes later for modules, stacks and printf, and that libraries take
// for their workspaces. A device with little memory leaves 1 byte of 32.
const budgetHeadroom = 256 << 20

func (r *Runtime) budgetLimit(cfg Config) (uint64, error) {
	if cfg.Budget > 0 {
		return cfg.Budget, nil
	}
	free, total, err := r.driver.MemInfo()
	if err != nil || !r.gpu {
		return total, err
	}
	return max(1, free-min(free/32, budgetHeadroom)), nil // 0 would be no budget
}

func (r *Runtime) finishBuild(cfg Config) (err error) {
	r.watchMemory(cfg)
	r.keepMetrics()
	if r.memory, err = cuda.NewMemoryManager(r.driver, r.streams, r); err != nil {
		return err
	}
	if r.collector, err = r.newCollector(); err != nil {
		return err
	}
	core.Base(r.Resource()).Subscribe(r.reporter)
	return nil
}

// watchMemory reads the device's memory in the background, unless nothing is
// to be done there.
func (r *Runtime) watchMemory(cfg Config) {
	watch := cuda.MemoryWatchConfig{OnSticky: func(op string, err error) {
		if r.Runtime.Health().Err == nil { // a loss that is known is not another
			r.ReportSticky(op, err)
		}
	}}
	if cfg.Async.ReapInterval < 0 {
		watch.Interval = -1
	}
	r.watch = cuda.WatchMemory(r.driver, r.holder, watch)
	r.onClose(r.watch.Close)
}
