// Package workload is the work that Fencepost is shown and tested with: a
// radix sort, a hash join and a filter of many goroutines over several
// streams, laid out so that almost every launch uses a block that another
// stream wrote last, with each result compared to a plain computation on the
// CPU.
//
// The host side is the same for every driver. The kernels are in those of
// the example service, for a GPU and for the simulated device; both must give the
// same results, and wrong values but no fault where a fence is missing.
package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/examples/service/kernels"
)

// Env is the stack that the work runs on.
type Env struct {
	Driver  driver.Driver
	Runtime *core.Runtime
	Streams *cuda.StreamPool
	Memory  *cuda.MemoryManager
}

// Config sizes the work.
type Config struct {
	// Goroutines work side by side, each on two streams of its own.
	Goroutines int
	// Iterations is how many sorts and joins each goroutine does in each of
	// Rounds rounds; leases are given back between rounds.
	Iterations, Rounds int
	// Rows is the number of rows of the larger side of the join.
	Rows int
	// Seed makes the data.
	Seed uint64
	// Begin, if not nil, is called before each iteration; its context is the
	// iteration's, and end is called after it.
	Begin func(ctx context.Context) (iteration context.Context, end func())
}

// Result counts what was done and what was wrong.
type Result struct {
	// Launches is the number of launches and copies, CrossStream those that
	// used a block which another stream wrote last.
	Launches, CrossStream uint64
	// Checked is the number of results compared to the CPU's, Wrong those
	// that differ.
	Checked, Wrong uint64
	// Refused counts iterations that gave up on a refused allocation.
	Refused uint64
}

// Workload is a prepared run. It may run once.
type Workload struct {
	env     Env
	cfg     Config
	module  *cuda.Module
	kernels *kernels.Kernels

	launches, crossStream, checked, wrong, refused atomic.Uint64
}

// Image is the device code of the workload, for a GPU. A simulated device runs
// the twins of its kernels instead; [Load] sees to both.
func Image() driver.Image { return driver.Image{Name: "fencepost.workload", PTX: kernels.PTX} }

// Load loads the kernels on any device.
func Load(drv driver.Driver) (*cuda.Module, error) {
	if device, ok := driver.Unwrap(drv).(*sim.Device); ok {
		if err := device.RegisterModule(Image().Name, kernels.Twins()...); err != nil {
			return nil, err
		}
	}
	return cuda.LoadModule(drv, Image())
}

// New loads the kernels.
func New(env Env, cfg Config) (*Workload, error) {
	if cfg.Goroutines < 1 || cfg.Iterations < 1 || cfg.Rounds < 1 || cfg.Rows < 2 {
		return nil, fmt.Errorf("workload: goroutines, iterations and rounds must be at least 1 and rows at least 2: %+v", cfg)
	}
	module, err := Load(env.Driver)
	if err != nil {
		return nil, fmt.Errorf("loading the workload's kernels: %w", err)
	}
	w := &Workload{env: env, cfg: cfg, module: module}
	if w.kernels, err = kernels.Find(module); err != nil {
		return nil, errors.Join(err, module.Unload())
	}
	return w, nil
}

// Run does the work until it is done or ctx ends, which is not an error. It
// stops at the first error of the stack.
func (w *Workload) Run(ctx context.Context) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for round := 0; round < w.cfg.Rounds && ctx.Err() == nil; round++ {
		var group sync.WaitGroup
		for g := range w.cfg.Goroutines {
			group.Go(func() {
				if err := w.runGoroutine(ctx, round, g); err != nil && ctx.Err() == nil {
					cancel(fmt.Errorf("workload: goroutine %d, round %d: %w", g, round, err))
				}
			})
		}
		group.Wait()
	}
	err := context.Cause(ctx)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return w.Result(), errors.Join(err, w.module.Unload())
}

// Result is what was counted so far.
func (w *Workload) Result() Result {
	return Result{Launches: w.launches.Load(), CrossStream: w.crossStream.Load(),
		Checked: w.checked.Load(), Wrong: w.wrong.Load(), Refused: w.refused.Load()}
}

func (w *Workload) runGoroutine(ctx context.Context, round, g int) (err error) {
	x, err := w.env.Streams.Acquire(ctx, "workload.x")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Release()) }()
	y, err := w.env.Streams.Acquire(ctx, "workload.y")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, y.Release()) }()
	rng := rand.New(rand.NewPCG(w.cfg.Seed, uint64(round)<<32|uint64(g)))
	for range w.cfg.Iterations {
		if ctx.Err() != nil {
			return nil
		}
		if err := w.traced(ctx, rng, x, y); err != nil {
			return err
		}
	}
	return nil
}

func (w *Workload) traced(ctx context.Context, rng *rand.Rand, x, y *cuda.Lease) error {
	if w.cfg.Begin != nil {
		var end func()
		ctx, end = w.cfg.Begin(ctx)
		defer end()
	}
	return w.iterate(ctx, rng, x, y)
}

func (w *Workload) newIteration(x, y *cuda.Lease) *iteration {
	return &iteration{w: w, streams: [2]*cuda.Lease{x, y}, writers: map[core.Generation]core.StreamID{}}
}

// iterate does one sort and join. A refused allocation ends the iteration and
// not the run.
func (w *Workload) iterate(ctx context.Context, rng *rand.Rand, x, y *cuda.Lease) error {
	it := w.newIteration(x, y)
	data := newTables(rng, w.cfg.Rows)
	err := it.run(context.WithoutCancel(ctx), data)
	err = errors.Join(err, it.freeAll(context.WithoutCancel(ctx)))
	if errors.Is(err, core.ErrOutOfBudget) || errors.Is(err, core.ErrOutOfMemory) {
		w.refused.Add(1)
		return nil
	}
	return err
}
