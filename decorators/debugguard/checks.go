package debugguard

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// maxChecks is how many batches may await their verdict. Beyond that the
// device is far behind: quarantine keeps its blocks up to twice its limit, and
// what must go then, or because memory is wanted, is freed unchecked.
//
// busyChecks is where comparisons that others make up for are left out.
const (
	maxChecks  = 4096
	busyChecks = 512
)

// check is a question to the device whose answer is awaited: a comparison (batch) or
// checksums (summing).
type check struct {
	stream core.StreamID
	at     uint64     // the tick at which it was queued
	uses   []core.Use // one of each block
	blocks int        // that it is about
	answer answer
	judge  func() error // reads the answer
	// void is set if the launch failed that asks: nothing orders it before the reuse
	// of the bytes, so its answer means nothing.
	void atomic.Bool
	// vain is set if a caller waited for it and gave up.
	vain atomic.Bool
}

// answer is a [deviceops.Verification] or [deviceops.Checksums].
type answer interface {
	Poll() (done bool, err error)
	Wait(ctx context.Context) error
	Discard()
}

// ask does a launch that asks c of the device.
func (r *Resource) ask(ctx context.Context, name string, c *check, enqueue func(context.Context, core.StreamID) error) error {
	err := r.device(ctx, work{name: name, stream: c.stream, uses: c.uses, enqueue: enqueue})
	if err != nil {
		c.void.Store(true)
	}
	return err
}

// awaitVerdict adds c, which was queued, to the checks whose answers are awaited.
func (r *Resource) awaitVerdict(c *check, a answer, judge func() error) {
	c.answer, c.judge = a, judge
	r.checks.add(c)
	r.upkeep.wake()
}

// batch is a comparison of regions of several blocks, to be queued at once.
type batch struct {
	check   check
	regions []deviceops.Region
	watched []watched
	// bisecting is set for a comparison behind a launch.
	bisecting bool
}

// watched is what a region of a batch is to its block. Its comparison covers
// what happened from a tick on.
type watched struct {
	rec    *ledger.Record
	offset int64 // of the region, from the caller's pointer
	from   uint64
	filled uint32
}

// inBody reports whether the region lies in the caller's bytes.
func (w watched) inBody() bool {
	return w.offset >= 0 && uint64(w.offset) < w.rec.Guard.Layout.Body
}

func newBatch(stream core.StreamID) *batch { return &batch{check: check{stream: stream}} }

// redZones adds the red zones of a block, poisoned those and its poison. The caller
// alone holds the block.
func (b *batch) redZones(rec *ledger.Record) {
	b.watch(rec, rec.Guard.Layout.RedZones(b.regions, rec.Generation()))
}

func (b *batch) poisoned(rec *ledger.Record) {
	g, guard := rec.Generation(), rec.Guard
	switch {
	case guard.CanaryOf != nil:
		b.watch(rec, guard.Layout.Poison(b.regions, g, true))
	case guard.Unpoisoned:
		b.redZones(rec)
	default:
		b.watch(rec, guard.Layout.Poison(guard.Layout.RedZones(b.regions, g), g, guard.Whole))
	}
}

func (b *batch) watch(rec *ledger.Record, regions []deviceops.Region) {
	g := rec.Guard
	clean, filled := g.Clean.Load(), g.Filled.Load()
	for _, region := range regions[len(b.regions):] {
		w := watched{rec: rec, offset: int64(region.Ptr - g.Layout.Start()), from: clean, filled: filled}
		if w.inBody() { // it was filled later than the red zones
			w.from = max(clean, g.PoisonedAt)
		}
		b.watched = append(b.watched, w)
	}
	b.regions, b.check.uses = regions, append(b.check.uses, core.Use{Block: rec.Inner(), Access: core.Read})
	b.check.blocks++
}

// compareBatch queues the comparison of a batch as a launch. On success its blocks
// count as clean up to here.
func (r *Resource) compareBatch(ctx context.Context, name string, b *batch) error {
	return r.launchBatch(ctx, name, b, func(ctx context.Context, stream core.StreamID) error { return r.compare(ctx, stream, b) })
}

// launchBatch is compareBatch by a function that queues the comparison, and maybe
// more behind it.
func (r *Resource) launchBatch(ctx context.Context, name string, b *batch, enqueue func(context.Context, core.StreamID) error) error {
	if err := r.ask(ctx, name, &b.check, enqueue); err != nil {
		return err
	}
	for _, w := range b.watched {
		raise(&w.rec.Guard.Clean, b.check.at)
	}
	return nil
}

// compare queues the comparison of a batch on a stream; the verdict comes later.
func (r *Resource) compare(ctx context.Context, stream core.StreamID, b *batch) error {
	b.check.stream, b.check.at = stream, r.launches.tick()
	v, err := r.cfg.Device.Verify(ctx, stream, b.regions)
	if err != nil {
		return err
	}
	r.awaitVerdict(&b.check, v, func() error { return r.judge(b, v) })
	return nil
}

// checks are the batches under way, oldest first.
type checks struct {
	gate  *atomic.Int64
	count atomic.Int64
	mu    sync.Mutex
	list  []*check
	// reading is held while verdicts are read and checks concluded. The findings are kept in found,
	// and told when it is free again: telling is how many of them are not told yet.
	reading ctxMutex
	found   []core.Finding
	telling atomic.Int64
	told    progress
}

// find keeps a finding to be told; reading must be held.
func (cs *checks) find(f core.Finding) {
	cs.telling.Add(1) // before the check is dropped, so that awaitTold waits for it
	cs.found = append(cs.found, f)
}

// unlockReading frees reading, which the caller holds, and then tells what was found.
func (r *Resource) unlockReading() {
	found := r.checks.found
	r.checks.found = nil
	r.checks.reading.unlock()
	usercode.All(found, func(f core.Finding) {
		defer func() {
			r.checks.telling.Add(-1)
			r.checks.told.step()
		}()
		r.report(f)
	})
}

// awaitTold waits until what other calls have found is told, or one of them makes no progress: it
// may wait for this call.
func (r *Resource) awaitTold(ctx context.Context) {
	r.checks.told.await(ctx, func() bool { return r.checks.telling.Load() == 0 })
}

func (cs *checks) awaited() int64 { return cs.count.Load() }
func (cs *checks) full() bool     { return cs.count.Load() >= maxChecks }

// busy reports whether only comparisons that are the last of their blocks should
// be queued.
func (cs *checks) busy() bool { return cs.count.Load() >= busyChecks }

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

// drop takes the first batch off, which the caller has concluded.
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
	if r.checks.awaited() == 0 || !r.checks.reading.tryLock() {
		return
	}
	defer r.unlockReading()
	for range limit {
		c := r.checks.oldest()
		if c == nil {
			return
		}
		done, err := c.answer.Poll()
		if err == nil && !done {
			return
		}
		r.conclude(c, err)
	}
}

// verdictsInPassing is how many verdicts an allocation or a free reads at most while
// launches are bisected.
const verdictsInPassing = 4

// pollVerdicts reads a few verdicts while launches are bisected: a comparison behind
// each launch names one launch only if it is read before many others have come. In
// every other mode the upkeep reads them.
func (r *Resource) pollVerdicts(u *rules) {
	if u.setting.Mode == Hunt && u.setting.Bisect {
		r.poll(verdictsInPassing)
	}
}

// conclude ends a check that is done or failed; checks.reading must be held.
func (r *Resource) conclude(c *check, err error) {
	defer r.checks.drop()
	switch {
	case c.void.Load():
		c.answer.Discard()
	case err != nil:
		c.answer.Discard()
		r.count.unchecked.Add(uint64(c.blocks))
	case c.judge() != nil:
		r.count.unchecked.Add(uint64(c.blocks))
	default:
		r.count.verified.Add(uint64(c.blocks))
	}
}

// await waits for the verdicts that are under way now, or until ctx ends; the
// rest stays for later. Their findings are told then.
func (r *Resource) await(ctx context.Context) error {
	left := r.checks.awaited()
	if left > 0 {
		if err := r.awaitWhile(ctx, func() bool { left--; return left >= 0 }); err != nil {
			return err
		}
	}
	r.awaitTold(ctx)
	return nil
}

// awaitWhile waits for verdicts, the oldest first, as long as more says so, or until
// ctx ends.
func (r *Resource) awaitWhile(ctx context.Context, more func() bool) error {
	if err := r.checks.reading.lock(ctx); err != nil {
		return err
	}
	defer r.unlockReading()
	for more() {
		c := r.checks.oldest()
		if c == nil {
			return nil
		}
		err := c.answer.Wait(ctx)
		if err != nil && ctx.Err() != nil {
			return err
		}
		r.conclude(c, err)
	}
	return nil
}
