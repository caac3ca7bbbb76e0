package debugguard

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// maxChecks is how many batches may await their verdict. Beyond that the
// device is far behind, and blocks are freed unchecked.
const maxChecks = 1024

// batch is a comparison of regions of several blocks, to be queued at once.
type batch struct {
	stream  core.StreamID
	regions []core.Region
	watched []watched
	blocks  int
	// void is set if the launch of the comparison failed: nothing orders it
	// before the reuse of the bytes, so its verdict means nothing.
	void atomic.Bool
}

// watched is what a region of a batch is to its block. Its comparison covers
// what happened between the ticks from and to.
type watched struct {
	rec      *record
	offset   int64 // of the region, from the caller's pointer
	from, to uint64
}

func newBatch(stream core.StreamID) *batch { return &batch{stream: stream} }

// redZones adds the red zones of a block, poisoned those and its poison. at
// is the tick of the comparison. The caller alone holds the block.
func (b *batch) redZones(rec *record, at uint64) {
	b.watch(rec, at, rec.guard.layout.redZones(b.regions, rec.generation()))
}

func (b *batch) poisoned(rec *record, at uint64) {
	g := rec.generation()
	b.watch(rec, at, rec.guard.layout.poison(rec.guard.layout.redZones(b.regions, g), g, rec.guard.whole))
}

func (b *batch) watch(rec *record, at uint64, regions []core.Region) {
	for _, region := range regions[len(b.regions):] {
		b.watched = append(b.watched, watched{rec: rec, offset: int64(region.Ptr - rec.guard.layout.start()), from: rec.guard.clean, to: at})
	}
	b.regions = regions
	b.blocks++
}

// check is a batch whose verdict is awaited.
type check struct {
	batch        *batch
	verification core.Verification
}

// compare queues the comparison of a batch; the verdict comes later. On
// success the blocks count as clean up to it: what it finds is reported once.
func (r *Resource) compare(ctx context.Context, b *batch) error {
	v, err := r.cfg.Device.Verify(ctx, b.stream, b.regions)
	if err != nil {
		return err
	}
	for _, w := range b.watched {
		w.rec.guard.clean = w.to
	}
	r.checks.add(&check{batch: b, verification: v})
	return nil
}

// checks are the batches under way, oldest first.
type checks struct {
	gate  *atomic.Int64
	count atomic.Int64
	mu    sync.Mutex
	list  []*check
	// settling is held by who reads verdicts. Drain keeps it while it waits;
	// everybody else only tries to take it.
	settling sync.Mutex
}

func (cs *checks) awaited() int64 { return cs.count.Load() }
func (cs *checks) full() bool     { return cs.count.Load() >= maxChecks }

func (cs *checks) add(c *check) {
	cs.gate.Add(1)
	cs.mu.Lock()
	cs.list = append(cs.list, c)
	cs.mu.Unlock()
	cs.count.Add(1)
}

// oldest is the first batch, nil if there is none.
func (cs *checks) oldest() *check {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.list) == 0 {
		return nil
	}
	return cs.list[0]
}

// drop takes the first batch off; settling must be held.
func (cs *checks) drop() {
	cs.mu.Lock()
	cs.list[0] = nil
	cs.list = cs.list[1:]
	cs.mu.Unlock()
	cs.count.Add(-1)
	cs.gate.Add(-1)
}

// poll reads the verdicts of at most limit batches that the device has done.
// It does not block. One whose device failed is given up.
func (r *Resource) poll(limit int) {
	if r.checks.awaited() == 0 || !r.checks.settling.TryLock() {
		return
	}
	defer r.checks.settling.Unlock()
	for range limit {
		c := r.checks.oldest()
		if c == nil {
			return
		}
		done, err := c.verification.Poll()
		if err == nil && !done {
			return
		}
		r.settle(c, err)
	}
}

// settle ends a batch that is done or failed; settling must be held.
func (r *Resource) settle(c *check, err error) {
	switch {
	case c.batch.void.Load():
		c.verification.Discard()
	case err != nil:
		c.verification.Discard()
		r.count.unchecked.Add(uint64(c.batch.blocks))
	default:
		r.judge(c)
	}
	r.checks.drop()
}

// await waits for the verdicts that are under way now, or until ctx ends; the
// rest stays for later.
func (r *Resource) await(ctx context.Context) error {
	r.checks.settling.Lock()
	defer r.checks.settling.Unlock()
	for range r.checks.awaited() {
		c := r.checks.oldest()
		if c == nil {
			return nil
		}
		err := c.verification.Wait(ctx)
		if err != nil && ctx.Err() != nil {
			return err
		}
		r.settle(c, err)
	}
	return nil
}
