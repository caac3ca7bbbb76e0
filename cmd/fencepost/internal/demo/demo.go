// Package demo is the main job of the fencepost command: the two workloads
// side by side on an open runtime, a report of what happened, and bugs planted
// on request to show what the runtime says of them.
package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/audit"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/traceio/replay"
	"github.com/fencepost-gpu/fencepost/internal/workload"
	"github.com/fencepost-gpu/fencepost/traces"
)

// Streams is how many stream leases a runtime for the demo needs.
const Streams = 2*goroutines + 16

const (
	goroutines = 8
	iterations = 32
	rows       = 1024
)

// Demo is one run over an open runtime.
type Demo struct {
	rt       *fencepost.Runtime
	workload *workload.Workload
	plant    *Plant

	started        time.Time
	audit          *audit.Counter
	replays        atomic.Uint64
	replayRefusals atomic.Uint64
	deviceName     string
	peakReserved   uint64
	drift          int64
	quarantine     uint64
}

// New prepares a run. begin, if not nil, makes each iteration of the workload
// a request of its own: its context is the iteration's, and end is called
// after it.
// plant is the bug to plant, nil for none.
func New(rt *fencepost.Runtime, begin func(context.Context) (iteration context.Context, end func()), plant *Plant) (*Demo, error) {
	d := &Demo{rt: rt, plant: plant}
	if plant != nil {
		plant.rt, plant.onGPU = rt, rt.DeviceChoice().Kind == fencepost.CUDA
	}
	props, err := rt.Driver().Properties()
	if err != nil {
		return nil, err
	}
	d.deviceName = fmt.Sprintf("%s (ordinal %d)", props.Name, rt.Ordinal())
	d.workload, err = workload.New(
		workload.Env{Driver: rt.Driver(), Runtime: rt.Core(), Streams: rt.Streams(), Memory: rt.Memory()},
		workload.Config{Goroutines: goroutines, Iterations: iterations, Rounds: math.MaxInt, Rows: rows, Seed: uint64(time.Now().UnixNano()), Begin: begin})
	return d, err
}

// Measure takes the readings that need the driver, when the work has ended
// and before the runtime is closed: nothing may be held then but leaks.
func (d *Demo) Measure(ctx context.Context) error {
	if err := d.rt.Drain(ctx); err != nil {
		return err
	}
	pool, err := d.rt.PoolStats()
	if err != nil {
		return err
	}
	drift, err := d.rt.Drift() // nothing is under way
	d.peakReserved, d.drift = pool.ReservedHigh, drift.Bytes
	return err
}

// Run works until ctx ends or something fails, and plants the bug in between.
func (d *Demo) Run(ctx context.Context) error {
	d.started, d.audit = time.Now(), audit.Count()
	defer d.audit.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	errs := make([]error, 3)
	group.Go(func() { _, errs[0] = d.workload.Run(ctx); cancelOn(errs[0], cancel) })
	group.Go(func() { errs[1] = d.replayTraces(ctx); cancelOn(errs[1], cancel) })
	if d.plant != nil {
		group.Go(func() { errs[2] = d.plantBug(ctx) })
	}
	group.Go(func() { d.watchQuarantine(ctx) })
	group.Wait()
	return errors.Join(errs...)
}

func cancelOn(err error, cancel func()) {
	if err != nil {
		cancel()
	}
}

// plantBug waits until the work is well under way.
func (d *Demo) plantBug(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-time.After(300 * time.Millisecond):
	}
	return d.plant.Do(context.WithoutCancel(ctx))
}

// replayTraces plays the embedded traces one after another until ctx ends.
func (d *Demo) replayTraces(ctx context.Context) error {
	var loaded []*alloctrace.Trace
	for _, name := range traces.Names() {
		t, err := load(name)
		if err != nil {
			return err
		}
		loaded = append(loaded, t)
	}
	for i := 0; ctx.Err() == nil; i++ {
		report, err := replay.Play(ctx, loaded[i%len(loaded)], replay.Config{Runtime: d.rt.Core(), Streams: d.rt.Streams()})
		d.replayRefusals.Add(report.Refusals)
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("replaying: %w", err)
		}
		d.replays.Add(1)
	}
	return nil
}

func load(name string) (*alloctrace.Trace, error) {
	f, err := traces.Open(name)
	if err != nil {
		return nil, err
	}
	t, err := alloctrace.Read(name, f)
	return t, errors.Join(err, f.Close())
}

// watchQuarantine notes the most that is seen in quarantine until ctx ends.
func (d *Demo) watchQuarantine(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		d.quarantine = max(d.quarantine, d.rt.Stats().Quarantined.Bytes)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
