package gputest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
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
	// meant are kinds of findings that the test's program gives cause for.
	meant []core.FindingKind
	seen  uint64 // findings of a dry run's oracle before the test
}

// newBench opens a runtime on the first GPU. A driver in cfg stands for it.
func newBench(t *testing.T, cfg fencepost.Config) *bench {
	t.Helper()
	return gpu(t).bench(t, cfg)
}

func (h *hardware) bench(t *testing.T, cfg fencepost.Config) *bench {
	t.Helper()
	must(t, h.rewind())
	if !h.inUse.CompareAndSwap(false, true) { // on a GPU Open says so itself
		t.Fatal("a runtime is open on this device already: one test, one runtime")
	}
	b := &bench{T: t, hw: h}
	cfg.Device, cfg.Ordinal = fencepost.CUDA, h.Ordinal()
	if dryRun {
		b.seen = h.sim.FindingCount()
		if cfg.Driver == nil {
			cfg.Driver = h.sim
		}
	}
	var err error
	if cfg.Resource == "" {
		cfg.Resource = fencepost.Backend(resource)
	}
	b.Runtime, err = fencepost.Open(ctx, cfg)
	t.Cleanup(func() { h.inUse.Store(false) })
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

// endBound is how long the end of a test may take, after a failure in which
// work or a capture was left open.
const endBound = 20 * time.Second

func (b *bench) close() {
	b.Helper()
	bounded, cancel := context.WithTimeout(ctx, endBound)
	defer cancel()
	err := b.Drain(bounded)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the device was not done %v after the test had ended, or a capture was left open: %w", endBound, err)
	}
	if !b.Failed() {
		b.empty()
	}
	if b.module != nil {
		err = errors.Join(err, b.module.Unload())
	}
	left, closeErr := b.Close(bounded)
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
		if !slices.Contains(b.meant, f.Kind) {
			b.Errorf("a finding: %v", f)
		}
	}
	if dryRun && b.hw.sim.FindingCount() != b.seen {
		b.Errorf("the oracle of the dry run: %v", b.hw.sim.Findings())
	}
}

// empty demands that nothing is allocated, pending or in quarantine.
func (b *bench) empty() {
	b.Helper()
	pool, err := b.PoolStats()
	must(b, err)
	if s := b.Stats(); pool.Used != 0 || s.Outstanding() != (core.Amount{}) || s.Charged != 0 || s.Underflows != 0 || s.Poisoned != 0 {
		b.Errorf("after everything was given back the driver's pool has %d bytes allocated, and the books say %+v", pool.Used, s)
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

func (b *bench) env() workload.Env {
	return workload.Env{Driver: b.Driver(), Runtime: b.Core(), Streams: b.Streams(), Memory: b.Memory()}
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
