package gputest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/testkernels"
	"github.com/fencepost-gpu/fencepost/internal/workload"
)

// bench is a runtime on the GPU, with kernels whose results are easily checked.
// At the end of the test nothing may be left on the device, in the driver's
// books as in the runtime's, and nothing may have been found.
type bench struct {
	*testing.T
	*fencepost.Runtime
	hw *hardware

	module                                    *cuda.Module
	delay, write, check, copyAdd, outOfBounds *cuda.Kernel
	// dirty is set by a test that plants something.
	dirty bool
	seen  uint64 // findings of a dry run's oracle before the test
}

// words is device memory that all of the kernels work on.
type words = cuda.Slice[uint64]

// newBench opens a runtime on the first GPU. A driver in cfg stands for it.
func newBench(t *testing.T, cfg fencepost.Config) *bench {
	t.Helper()
	return gpu(t).bench(t, cfg)
}

func (h *hardware) bench(t *testing.T, cfg fencepost.Config) *bench {
	t.Helper()
	must(t, h.rewind())
	b := &bench{T: t, hw: h}
	cfg.Device, cfg.Ordinal = fencepost.CUDA, h.Ordinal()
	if dryRun {
		b.seen = h.sim.FindingCount()
		if cfg.Driver == nil {
			cfg.Driver = h.sim
		}
	}
	var err error
	b.Runtime, err = fencepost.Open(ctx, cfg)
	must(t, err)
	t.Cleanup(b.close)
	b.module, err = cuda.LoadModule(b.Driver(), testkernels.Image())
	must(t, err)
	for name, kernel := range map[string]**cuda.Kernel{testkernels.Delay: &b.delay, testkernels.Write: &b.write, testkernels.Check: &b.check,
		testkernels.CopyAdd: &b.copyAdd, testkernels.OutOfBounds: &b.outOfBounds} {
		*kernel, err = b.module.Kernel(name)
		must(t, err)
	}
	return b
}

func (b *bench) close() {
	b.Helper()
	err := b.Drain(ctx)
	if !b.Failed() {
		b.empty()
	}
	if b.module != nil {
		err = errors.Join(err, b.module.Unload())
	}
	left, closeErr := b.Runtime.Close(ctx)
	if err := errors.Join(err, closeErr); err != nil {
		b.Errorf("the end: %v", err)
	}
	if len(left.Leaks) > 0 || left.OpenIntents > 0 {
		b.Errorf("left over: %d blocks, %d open intents", len(left.Leaks), left.OpenIntents)
	}
	if b.dirty {
		return
	}
	for _, f := range b.Findings().Recent() {
		b.Errorf("a finding: %v", f)
	}
	if dryRun && b.hw.sim.FindingCount() != b.seen {
		b.Errorf("the oracle of the dry run: %v", b.hw.sim.Findings())
	}
}

// empty demands that nothing is allocated, pending or in quarantine.
func (b *bench) empty() {
	b.Helper()
	_, _, used, _, err := b.PoolStats()
	must(b, err)
	if s := b.Stats(); used != 0 || s.Outstanding() != (core.Amount{}) || s.Charged != 0 || s.Underflows != 0 || s.Poisoned != 0 {
		b.Errorf("after everything was given back the driver's pool has %d bytes allocated, and the books say %+v", used, s)
	}
}

func (b *bench) lease(tag core.Tag) *cuda.Lease {
	b.Helper()
	l, err := b.Streams().Acquire(ctx, tag)
	must(b, err)
	b.Cleanup(func() { _ = l.Release() }) // the test may have released it
	return l
}

func (b *bench) leases(n int) []*cuda.Lease {
	b.Helper()
	all := make([]*cuda.Lease, n)
	for i := range all {
		all[i] = b.lease("test")
	}
	return all
}

func (b *bench) alloc(on *cuda.Lease, n int, tag core.Tag) *words {
	b.Helper()
	w, err := b.tryAlloc(on, n, tag)
	must(b, err)
	return w
}

func (b *bench) tryAlloc(on *cuda.Lease, n int, tag core.Tag) (*words, error) {
	return cuda.Alloc[uint64](ctx, b.Memory(), n, cuda.AllocOptions{Stream: on.ID(), Tag: tag})
}

// counter is a word for the words that a check finds wrong.
func (b *bench) counter(on *cuda.Lease) (*words, error) {
	sum, err := b.tryAlloc(on, 1, "mismatches")
	if err != nil {
		return nil, err
	}
	return sum, cuda.Memset(ctx, sum, on.ID(), 0)
}

// mismatches is what a counter has counted. A counter that no kernel adds to
// would be silent too, so three more mismatches are made on purpose.
func (b *bench) mismatches(on *cuda.Lease, sum *words) (uint64, error) {
	const made = 3
	before, err := cuda.Download(ctx, sum, on.ID())
	if err != nil {
		return 0, err
	}
	w, err := b.tryAlloc(on, made, "mismatches")
	if err != nil {
		return 0, err
	}
	err = errors.Join(b.doWrite(on, w, 1), b.doCheck(on, w, 2, sum), w.Free(ctx))
	after, readErr := cuda.Download(ctx, sum, on.ID())
	if err := errors.Join(err, readErr, sum.Free(ctx)); err != nil {
		return 0, err
	}
	if counted := after[0] - before[0]; counted != made {
		return 0, fmt.Errorf("the counter counted %d of %d mismatches", counted, made)
	}
	return before[0], nil
}

// right demands that a counter has counted nothing, and gives it back.
func (b *bench) right(on *cuda.Lease, sum *words) {
	b.Helper()
	n, err := b.mismatches(on, sum)
	must(b, err)
	if n != 0 {
		b.Errorf("%d words are wrong", n)
	}
}

func (b *bench) doWrite(on *cuda.Lease, to *words, value uint64) error {
	return b.write.Launch(ctx, b.Runtime.Runtime, on, grid(to.Len()), []core.Use{to.Use(core.Write)}, to.Arg(), driver.U64(uint64(to.Len())), driver.U64(value))
}

// doCheck adds the number of words that are not value to sum.
func (b *bench) doCheck(on *cuda.Lease, of *words, value uint64, sum *words) error {
	return b.check.Launch(ctx, b.Runtime.Runtime, on, grid(of.Len()), []core.Use{of.Use(core.Read), sum.Use(core.ReadWrite)},
		of.Arg(), driver.U64(uint64(of.Len())), driver.U64(value), sum.Arg())
}

// doCopy copies what fits of from, with add added to each word.
func (b *bench) doCopy(on *cuda.Lease, to, from *words, add uint64) error {
	n := min(to.Len(), from.Len())
	return b.copyAdd.Launch(ctx, b.Runtime.Runtime, on, grid(n), []core.Use{to.Use(core.Write), from.Use(core.Read)},
		to.Arg(), from.Arg(), driver.U64(uint64(n)), driver.U64(add))
}

// grid has a thread for each of some words, which then go on to others.
func grid(n int) cuda.Grid { return cuda.Blocks1D(min(n, 1<<16), 256) }

// read returns the words when everything before has been done.
func (b *bench) read(on *cuda.Lease, from *words) []uint64 {
	b.Helper()
	values, err := cuda.Download(ctx, from, on.ID())
	must(b, err)
	return values
}

func (b *bench) env() workload.Env {
	return workload.Env{Driver: b.Driver(), Runtime: b.Runtime.Runtime, Streams: b.Streams(), Memory: b.Memory(), Image: workload.Image()}
}

// runWorkload runs the workload once and returns what it counted.
func (b *bench) runWorkload(cfg workload.Config) workload.Result {
	b.Helper()
	result, err := b.tryWorkload(cfg)
	must(b, err)
	return result
}

func (b *bench) tryWorkload(cfg workload.Config) (workload.Result, error) {
	b.Helper()
	began := time.Now()
	w, err := workload.New(b.env(), cfg)
	if err != nil {
		return workload.Result{}, err
	}
	r, err := w.Run(ctx)
	b.Logf("%d launches and copies, %d of them across streams; %d results, %d wrong; %.1fs", r.Launches, r.CrossStream, r.Checked, r.Wrong, time.Since(began).Seconds())
	return r, err
}

// increment adds one to every word, raw: the caller has fenced it.
func (b *bench) increment(on *cuda.Lease, w *words) error {
	return b.copyAdd.Enqueue(on.Handle(), grid(w.Len()), w.Arg(), w.Arg(), driver.U64(uint64(w.Len())), driver.U64(1))
}
