package corpus

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// Job is a launch: what is declared of it, and what it does.
type Job struct {
	// Name is the launch's, On its stream.
	Name string
	On   *Stream
	// Uses are declared, whatever the job does.
	Uses []core.Use
	// Kernel and Args are what is enqueued, unless Enqueue is set. Addresses
	// are of type Addr; every other argument is a number.
	Kernel  string
	Args    []any
	Enqueue func(driver.Stream) error
	// Guilty says that Enqueue is the bug, and a copy or a fill: the driver of a
	// GPU checks the ranges of those against its allocations, and may refuse it.
	Guilty bool
}

// Do launches a job that must succeed.
func (w *World) Do(j Job) { w.must(w.Try(j)) }

// pardon notes it if the driver refused the call that is the bug, and returns
// every other error.
func (w *World) pardon(j Job, err error) error {
	if e, ok := errors.AsType[*core.DriverError](err); ok && j.Guilty && e.Code == driver.InvalidValue {
		w.watch.byDriver = errors.Join(w.watch.byDriver, err)
		return nil
	}
	return err
}

// Try launches a job between the two halves of the protocol, as Kernel.Launch
// does, under a name of its own. Over a backend that fences nothing the stream
// is waited for instead.
func (w *World) Try(j Job) error {
	if !w.tracked {
		return errors.Join(w.pardon(j, w.enqueue(j, j.On.Handle())), w.Driver().StreamSynchronize(j.On.Handle()))
	}
	t, err := w.Core().PrepareUse(w.ctx, core.UseRequest{Stream: j.On.ID(), Launch: j.Name, Uses: j.Uses, Pointers: j.pointers(), Wait: true})
	if err != nil {
		return err
	}
	if err := w.enqueue(j, j.On.Handle()); err != nil {
		return errors.Join(w.pardon(j, err), w.Core().AbortUse(w.ctx, t))
	}
	return w.Core().FinishUse(w.ctx, t)
}

// RawLate enqueues a job raw behind the end of what it touches, if that is the bug,
// and before it if not.
func (w *World) RawLate(bug bool, j Job, end func()) {
	if !bug {
		w.Raw(j)
	}
	end()
	if bug {
		w.Raw(j)
	}
}

// Raw enqueues a job behind the runtime's back: nothing of it is declared.
func (w *World) Raw(j Job) { w.must(w.pardon(j, w.enqueue(j, j.On.Handle()))) }

func (w *World) enqueue(j Job, h driver.Stream) error {
	if j.Enqueue != nil {
		return j.Enqueue(h)
	}
	args := make([]driver.Arg, len(j.Args))
	for i, a := range j.Args {
		switch v := a.(type) {
		case Addr:
			args[i] = driver.Ptr(uint64(v))
		case int:
			args[i] = driver.U64(uint64(v))
		case uint64:
			args[i] = driver.U64(v)
		default:
			return fmt.Errorf("%s: argument %d is %T", j.Kernel, i, a)
		}
	}
	return w.kernels[j.Kernel].Enqueue(h, cuda.Blocks1D(1024, 256), args...)
}

// pointers are the addresses among the arguments.
func (j Job) pointers() []uint64 {
	var found []uint64
	for _, a := range j.Args {
		if at, ok := a.(Addr); ok {
			found = append(found, uint64(at))
		}
	}
	return found
}

// Write declares and writes all of a block.
func (w *World) Write(name string, s *Stream, m *Mem, value uint64) {
	w.Do(Job{Name: name, On: s, Uses: []core.Use{m.W()}, Kernel: testkernels.Write, Args: []any{m.At(0), m.Words(), value}})
}

// writes is a job on s that writes n words at an address, and declares nothing.
func (s *Stream) writes(at Addr, n int, value uint64) Job {
	return Job{On: s, Kernel: testkernels.Write, Args: []any{at, n, value}}
}

// Read declares and reads all of a block.
func (w *World) Read(name string, s *Stream, m *Mem) { w.Do(w.reading(name, s, m)) }

func (w *World) reading(name string, s *Stream, m *Mem) Job {
	j := s.reads(m.At(0), m.Words())
	j.Name, j.Uses = name, append(j.Uses, m.R())
	return j
}

// reads is a job on s that reads n words at an address. Only its own sum is
// declared.
func (s *Stream) reads(at Addr, n int) Job {
	return Job{On: s, Uses: []core.Use{{Block: s.sum.ID, Access: core.ReadWrite}},
		Kernel: testkernels.Check, Args: []any{at, n, uint64(1), Addr(s.sum.ID.Ptr)}}
}

// Copy declares and copies n words between two blocks.
func (w *World) Copy(name string, s *Stream, to, from *Mem, n int) {
	w.Do(Job{Name: name, On: s, Uses: []core.Use{to.W(), from.R()}, Kernel: testkernels.CopyAdd, Args: []any{to.At(0), from.At(0), n, uint64(0)}})
}

// Download waits for a block's first words.
func (w *World) Download(s *Stream, v *cuda.Slice[uint64]) []uint64 {
	values, err := cuda.Download(w.ctx, v, s.ID())
	w.must(err)
	return values
}
