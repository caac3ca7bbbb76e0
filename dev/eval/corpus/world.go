package corpus

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
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
	w := &World{Tier: t, ctx: ctx, machine: m, watch: new(watch)}
	cfg := fencepost.Config{Guard: t.Guard, Resource: backend, OnFinding: w.watch.note}
	if t.OwnProcess { // faults are named of a device that the runtime opens
		cfg.Device, cfg.Sim.Bytes, cfg.Faults = m.kind(), simBytesIsolated, fencepost.FaultsNamed
	} else {
		drv, simulated, err := m.device(simBytes)
		if err != nil {
			return nil, err
		}
		if cfg.Driver, w.sim = drv, simulated; simulated != nil {
			w.after = append(w.after, simulated.Close)
		}
	}
	if c.Configure != nil {
		c.Configure(&cfg)
	}
	var err error
	if w.Runtime, err = fencepost.Open(ctx, cfg); err != nil {
		return nil, errors.Join(err, w.undo())
	}
	w.after = append(w.after, func() error { _, err := w.Close(context.WithoutCancel(ctx)); return err })
	w.tracked = w.Core().SupportsBlockUseTracking()
	for _, step := range []func() error{w.take, w.load, w.furnish} {
		if err := step(); err != nil {
			return nil, errors.Join(err, w.undo())
		}
	}
	return w, nil
}

// take is for a device that the runtime has opened.
func (w *World) take() (err error) {
	m := w.machine
	switch d := driver.Unwrap(w.Driver()).(type) {
	case *sim.Device:
		if w.sim != nil {
			return nil
		}
		w.sim = d
		return testkernels.Register(d)
	default:
		if m.gpu != nil {
			return nil
		}
		m.gpu = w.Driver()
		if m.properties, err = m.gpu.Properties(); err != nil {
			return err
		}
		w.after = append(w.after, func() error {
			_ = m.release() // it fails on a lost device
			m.gpu = nil
			return nil
		})
		return m.prepare()
	}
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
	for i := 0; err == nil && w.Tier.OwnProcess && i < len(w.streams); i++ { // a Drain does not wait for what was not declared
		if lost := w.Driver().StreamSynchronize(w.streams[i].Handle()); errors.Is(lost, core.ErrSticky) {
			w.Core().ReportSticky("StreamSynchronize", lost)
			err = lost
		}
	}
	for end := time.Now().Add(programBound / 2); errors.Is(err, core.ErrSticky) && !w.watch.tellsLoss() && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // a core dump is read
	}
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
