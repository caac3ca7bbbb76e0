package corpus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkernels"
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

// Stream is a lease, with a word in which checks count what differs.
type Stream struct {
	*cuda.Lease
	sum core.Block
}

// stop is how a program ends early.
type stop struct{ err error }

// must ends the program if err is not nil.
func (w *World) must(err error) {
	if err != nil {
		panic(stop{err}) // lint:recovered
	}
}

// programBound is how long a program and its end may take.
const programBound = 30 * time.Second

func (m *Machine) open(ctx context.Context, c Case, t Tier, backend string) (*World, error) {
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
	cfg := fencepost.Config{Driver: drv, Guard: t.Guard(), Resource: backend, OnFinding: w.watch.note}
	if c.Configure != nil {
		c.Configure(&cfg)
	}
	if w.Runtime, err = fencepost.Open(ctx, cfg); err != nil {
		return nil, errors.Join(err, w.undo())
	}
	w.after = append(w.after, func() error { _, err := w.Close(context.WithoutCancel(ctx)); return err })
	w.tracked = w.SupportsBlockUseTracking()
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

// Stream leases a stream.
func (w *World) Stream() *Stream {
	l, err := w.Streams().Acquire(w.ctx, "corpus")
	w.must(err)
	return w.furnished(l)
}

// Adopt makes a stream of the program's own and brings it under a lease.
func (w *World) Adopt() *Stream {
	h, err := w.Driver().StreamCreate()
	w.must(err)
	last := 0 // undone behind the end of the runtime, and before that of the device
	if w.sim != nil {
		last = 1
	}
	w.after = slices.Insert(w.after, last, func() error { return w.Driver().StreamDestroy(h) })
	l, err := w.Streams().Adopt(h, "corpus.adopted")
	w.must(err)
	return w.furnished(l)
}

func (w *World) furnished(l *cuda.Lease) *Stream {
	s := &Stream{Lease: l}
	w.streams = append(w.streams, s)
	var err error
	s.sum, err = w.Allocate(w.ctx, core.Request{Bytes: wordBytes, Stream: l.ID(), Tag: "sum"})
	w.must(err)
	w.own = append(w.own, s.sum.ID)
	w.Do(Job{Name: "clear_sum", On: s, Uses: []core.Use{{Block: s.sum.ID, Access: core.Write}},
		Enqueue: func(h driver.Stream) error { return w.Driver().MemsetAsync(s.sum.ID.Ptr, 0, wordBytes, h) }})
	return s
}

// Hold keeps what is enqueued on the stream from now on from running until
// release is called, at the latest when the program ends.
func (w *World) Hold(s *Stream) (release func()) {
	end, err := w.machine.hold(w.sim, s.Handle())
	w.must(err)
	once := sync.OnceFunc(end)
	w.held = append(w.held, once)
	return once
}

// Sync waits until the stream is done, as a program does that has no other
// means of order.
func (w *World) Sync(s *Stream) { w.must(w.Streams().Synchronize(w.ctx, s.ID())) }

// Refused takes the error of a call that is the bug. A program that looks at
// errors would stop here; this one goes on.
func (w *World) Refused(err error) { w.watch.refused = errors.Join(w.watch.refused, err) }

// failf ends the program because it could not be what it is there to be.
func (w *World) failf(format string, args ...any) { w.must(fmt.Errorf(format, args...)) }
