package guardcost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/traceio/replay"
	"github.com/fencepost-gpu/fencepost/internal/workload"
	"github.com/fencepost-gpu/fencepost/traces"
)

// sortJoin is the radix sort, hash join and filter of some goroutines; a unit
// is one of each on every goroutine.
type sortJoin struct {
	*workload.Batch
	name string
}

func newSortJoin(ctx context.Context, rt *fencepost.Runtime, goroutines, rows int) (*sortJoin, error) {
	w, err := workload.New(
		workload.Env{Driver: rt.Driver(), Runtime: rt.Core(), Streams: rt.Streams(), Memory: rt.Memory()},
		workload.Config{Goroutines: goroutines, Iterations: 1, Rounds: 1, Rows: rows, Seed: 1})
	if err != nil {
		return nil, err
	}
	batch, err := w.Batch(ctx)
	return &sortJoin{batch, fmt.Sprintf("sort+join %d rows, %d goroutines", rows, goroutines)}, err
}

func (s *sortJoin) Name() string { return s.name }

// replays plays recorded traces without waiting; a unit is each once.
type replays struct {
	rt     *fencepost.Runtime
	loaded []*alloctrace.Trace
	wrong  error
}

func newReplays(rt *fencepost.Runtime, names ...string) (*replays, error) {
	r := &replays{rt: rt}
	for _, name := range names {
		t, err := loadTrace(name)
		if err != nil {
			return nil, err
		}
		r.loaded = append(r.loaded, t)
	}
	return r, nil
}

func loadTrace(name string) (*alloctrace.Trace, error) {
	f, err := traces.Open(name)
	if err != nil {
		return nil, err
	}
	t, err := alloctrace.Read(name, f)
	return t, errors.Join(err, f.Close())
}

func (r *replays) Name() string { return fmt.Sprintf("replay of recorded traces (%d)", len(r.loaded)) }
func (r *replays) Check() error { return r.wrong }

func (r *replays) Run(ctx context.Context, n int) error {
	for range n {
		for _, t := range r.loaded {
			report, err := replay.Play(ctx, t, replay.Config{Runtime: r.rt.Core(), Streams: r.rt.Streams()})
			if err != nil {
				return err
			}
			if report.Refusals > 0 || report.UnknownFrees > 0 {
				r.wrong = fmt.Errorf("%s: %d refusals, %d unknown frees", t.Name, report.Refusals, report.UnknownFrees)
			}
		}
	}
	return nil
}

// scratch are the blocks in bytes that a short kernel works in.
var scratch = [...]uint64{64 << 10, 1 << 20}

// shortKernels is the worst case for a guard: scratch memory for one launch of
// a kernel that takes some microseconds, and its free; a unit is one of those
// on every goroutine. On the simulated device the kernel takes no time.
type shortKernels struct {
	rt      *fencepost.Runtime
	module  *cuda.Module
	kernel  *cuda.Kernel
	leases  []*cuda.Lease
	lasting time.Duration
}

func newShortKernels(ctx context.Context, rt *fencepost.Runtime, goroutines int, lasting time.Duration) (*shortKernels, error) {
	module, err := cuda.LoadModule(rt.Driver(), testkernels.Image())
	if err != nil {
		return nil, err
	}
	s := &shortKernels{rt: rt, module: module, lasting: lasting}
	if s.kernel, err = module.Kernel(testkernels.Delay); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	for range goroutines {
		l, err := rt.Streams().Acquire(ctx, "short")
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.leases = append(s.leases, l)
	}
	return s, nil
}

func (s *shortKernels) Name() string {
	return fmt.Sprintf("kernels of %v, %d goroutines", s.lasting, len(s.leases))
}

// Check has nothing to judge: the kernel writes nothing.
func (s *shortKernels) Check() error { return nil }

func (s *shortKernels) Run(ctx context.Context, n int) error {
	errs := make([]error, len(s.leases))
	var group sync.WaitGroup
	for i, l := range s.leases {
		group.Go(func() {
			for range n {
				if errs[i] = s.once(ctx, l); errs[i] != nil {
					return
				}
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func (s *shortKernels) once(ctx context.Context, on *cuda.Lease) error {
	var uses [len(scratch)]core.Use
	for i, bytes := range scratch {
		b, err := s.rt.Allocate(ctx, core.Request{Bytes: bytes, Stream: on.ID(), Tag: "scratch"})
		if err != nil {
			return errors.Join(err, s.free(ctx, uses[:i]))
		}
		uses[i] = core.Use{Block: b.ID, Access: core.Write}
	}
	grid := cuda.Grid{Grid: driver.Dim{X: 1}, Block: driver.Dim{X: 1}}
	err := s.kernel.Launch(ctx, s.rt, on, grid, uses[:], driver.U64(uint64(s.lasting.Nanoseconds())))
	return errors.Join(err, s.free(ctx, uses[:]))
}

func (s *shortKernels) free(ctx context.Context, uses []core.Use) error {
	var errs []error
	for _, u := range uses {
		_, err := s.rt.Deallocate(ctx, u.Block)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Close gives leases and kernels back.
func (s *shortKernels) Close() error {
	var errs []error
	for _, l := range s.leases {
		errs = append(errs, l.Release())
	}
	return errors.Join(append(errs, s.module.Unload())...)
}

// pulse is the time between two pieces of work on the device.
const pulse = 5 * time.Millisecond

// atWork is other work while the device has something to do now and then, on a
// stream of its own. A driver whose device has done nothing for a while answers
// calls for memory faster: on an H200 an allocation took 2.2 us then, and 3.5 us
// beside a memset of 4 KiB every 5 ms, whatever the guard did. A program that
// allocates has work for the device, so a guard that brings the first is not to
// be charged for that.
type atWork struct {
	Work
	lease *cuda.Lease
	bytes *cuda.Slice[byte]
}

func newAtWork(ctx context.Context, rt *fencepost.Runtime, w Work) (*atWork, error) {
	lease, err := rt.Streams().Acquire(ctx, "at work")
	if err != nil {
		return nil, err
	}
	bytes, err := cuda.Alloc[byte](ctx, rt.Memory(), 4<<10, cuda.AllocOptions{Stream: lease.ID(), Tag: "at work"})
	if err != nil {
		return nil, errors.Join(err, lease.Release())
	}
	return &atWork{w, lease, bytes}, nil
}

func (a *atWork) Name() string { return a.Work.Name() + ", the device at work" }

func (a *atWork) Run(ctx context.Context, n int) error {
	over, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- a.beat(ctx, over) }()
	err := a.Work.Run(ctx, n)
	close(over)
	return errors.Join(err, <-ended)
}

// beat gives the device something to do at once, and then from time to time.
func (a *atWork) beat(ctx context.Context, over <-chan struct{}) error {
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	for {
		if err := cuda.Memset(ctx, a.bytes, a.lease.ID(), 1); err != nil {
			return err
		}
		select {
		case <-over:
			return nil
		case <-ticker.C:
		}
	}
}

// Close gives back what the device worked in.
func (a *atWork) Close(ctx context.Context) error {
	return errors.Join(a.bytes.Free(ctx), a.lease.Release())
}
