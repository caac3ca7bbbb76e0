package corpus

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// World is what a program runs in: a runtime of its own with kernels, and the
// means to misuse it. Its methods end the program when something fails that
// should not. A world belongs to one goroutine.
type World struct {
	*fencepost.Runtime
	Tier Tier

	ctx     context.Context
	machine *Machine
	sim     *sim.Device
	module  *cuda.Module
	kernels map[string]*cuda.Kernel
	watch   *watch
	tracked bool
	own     []core.BlockID
	streams []*Stream
	held    []func()
	after   []func() error
}

// stop is how a program ends early.
type stop struct{ err error }

// must ends the program if err is not nil.
func (w *World) must(err error) {
	if err != nil {
		panic(stop{err})
	}
}

// programBound ends a program that hangs, on the slowest machine.
const programBound = time.Minute

func (m *Machine) open(ctx context.Context, c Case, t Tier, backend fencepost.Backend) (*World, error) {
	bytes := uint64(simBytes)
	if t.OwnProcess {
		bytes = simBytesIsolated
	}
	drv, simulated, err := m.device(bytes)
	if err != nil {
		return nil, err
	}
	w := &World{Tier: t, ctx: ctx, machine: m, sim: simulated, watch: new(watch)}
	if simulated != nil {
		w.after = append(w.after, simulated.Close)
	}
	cfg := fencepost.Config{Driver: drv, Guard: t.Guard, Resource: backend, OnFinding: w.watch.note}
	if c.Configure != nil {
		c.Configure(&cfg)
	}
	if w.Runtime, err = fencepost.Open(ctx, cfg); err != nil {
		return nil, errors.Join(err, w.undo())
	}
	w.after = append(w.after, func() error { _, err := w.Close(context.WithoutCancel(ctx)); return err })
	w.tracked = w.Core().SupportsBlockUseTracking()
	for _, step := range []func() error{w.load, w.furnish} {
		if err := step(); err != nil {
			return nil, errors.Join(err, w.undo())
		}
	}
	return w, nil
}

func (w *World) load() (err error) {
	if w.module, err = cuda.LoadModule(w.Driver(), testkernels.Image()); err != nil {
		return err
	}
	w.after = append(w.after, w.module.Unload)
	w.kernels = map[string]*cuda.Kernel{}
	for _, name := range []string{testkernels.Write, testkernels.Check, testkernels.CopyAdd, testkernels.Illegal, testkernels.OutOfBounds} {
		if w.kernels[name], err = w.module.Kernel(name); err != nil {
			return err
		}
	}
	return nil
}

// warmed is how many blocks the guard has seen before the program begins: what
// it keeps of page-locked memory must not be allocated while a stream is held.
const warmed = 4

// furnish moves the program away from the beginning of mapped memory and lets
// the guard allocate what it keeps.
func (w *World) furnish() error {
	ballast, err := w.Allocate(w.ctx, core.Request{Bytes: 64 << 10, Tag: "ballast"})
	if err != nil {
		return err
	}
	w.own = append(w.own, ballast.ID)
	var warm []core.Block
	for range warmed {
		b, err := w.Allocate(w.ctx, core.Request{Bytes: 512, Tag: "warm"})
		if err != nil {
			return err
		}
		warm = append(warm, b)
	}
	for _, b := range warm {
		if _, err := w.Deallocate(w.ctx, b.ID); err != nil {
			return err
		}
	}
	return w.Drain(w.ctx)
}

// undo ends everything; the last step is undone first.
func (w *World) undo() error {
	var errs []error
	for i := len(w.after) - 1; i >= 0; i-- {
		errs = append(errs, w.after[i]())
	}
	w.after = nil
	return errors.Join(errs...)
}

// finish ends the program: it lets held streams go, waits for the device and
// for every verdict, and gives back what is the world's own.
func (w *World) finish() error {
	for _, release := range w.held {
		release()
	}
	err := w.Drain(w.ctx)
	w.watch.end()
	for _, id := range w.own {
		if _, freeErr := w.Deallocate(w.ctx, id); freeErr != nil {
			err = errors.Join(err, freeErr)
		}
	}
	for _, s := range w.streams {
		_ = s.Release() // the program may have
	}
	return errors.Join(err, w.undo())
}
