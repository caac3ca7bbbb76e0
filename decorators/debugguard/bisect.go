package debugguard

import (
	"context"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
)

// launchBisect is the name of the comparisons after a launch.
const launchBisect = "gpumem.guard.bisect"

const (
	// bisectBytes and bisectBlocks are how much of what is not in use is
	// compared after one launch. What is beyond comes after the next ones, in
	// turn.
	bisectBytes  = 64 << 20
	bisectBlocks = 1024
	// bisectSuspects is how many launches a finding names at most, unless more
	// ended in its window.
	bisectSuspects = 3
	// bisectVerdicts is how many verdicts a launch reads in passing: more than
	// it makes, so that they do not pile up.
	bisectVerdicts = 8
	// bisectLag is how many verdicts may be awaited before the end of a launch
	// waits for the oldest: a device that falls behind would have comparisons left
	// out, and windows as wide as the gap. It waits for bisectPatience at most, for
	// the device may be waiting for what the program does next.
	bisectLag      = 64
	bisectPatience = time.Second
)

// bisect queues, behind a launch that has just been finished, the comparison of its
// own blocks' red zones, of quarantined blocks and canaries, and of sealed blocks.
// They run on the launch's stream, and their verdicts come later, as always. What is found then lies between this comparison and the
// last, so that its window holds this launch, and those that ran beside it. The
// launch waits only where the device has fallen far behind.
//
// The launch still retains its blocks: none is freed before drop. One that
// another stream uses by now is left to that launch's own comparison. Of the
// quarantine, only blocks that are already ordered before this stream are compared:
// a wait of the guard's would hide that the program lacks one.
func (r *Resource) bisect(ctx context.Context, stream core.StreamID, known []knownUse) {
	if r.cfg.Device == nil || !r.hunting().Bisect {
		return
	}
	r.poll(bisectVerdicts)
	r.keepUp(ctx)
	r.bisectOwn(ctx, stream, known)
	r.bisectOthers(ctx, stream)
	r.bisectSeals(ctx, stream)
}

// keepUp waits until few enough verdicts are awaited. A batch that was waited
// for in vain is not waited for again: whatever holds it up holds up everything.
func (r *Resource) keepUp(ctx context.Context) {
	if !r.checks.lag() {
		return
	}
	patient, cancel := context.WithTimeout(ctx, bisectPatience)
	defer cancel()
	if r.awaitWhile(patient, r.checks.lag) == nil || ctx.Err() != nil { // or the caller was in a hurry
		return
	}
	if c := r.checks.oldest(); c != nil {
		c.vain.Store(true)
	}
}

// lag reports whether too many verdicts are awaited, and waiting may help.
func (cs *checks) lag() bool {
	if cs.awaited() < bisectLag {
		return false
	}
	c := cs.oldest()
	return c != nil && !c.vain.Load()
}

func (r *Resource) bisectOwn(ctx context.Context, stream core.StreamID, known []knownUse) {
	b := newBatch(stream)
	for _, h := range known {
		if h.guarded() && h.rec.Guard.Armed {
			b.redZones(h.rec)
		}
	}
	r.bisectBatch(ctx, b)
}

// bisectOthers takes its turn at quarantine unless blocks are leaving it,
// which are compared then.
func (r *Resource) bisectOthers(ctx context.Context, stream core.StreamID) {
	if !r.evicting.try() {
		return
	}
	defer r.evicting.giveBack(true)
	b := newBatch(stream)
	ordered := func(rec *ledger.Record) bool { return r.orderedBlock(rec.Inner(), stream) }
	for _, q := range [...]*queue{&r.quarantine.queue, &r.canaries.queue} {
		for _, rec := range q.nextInTurn(bisectBlocks, bisectBytes, ordered) {
			b.poisoned(rec)
		}
	}
	r.bisectBatch(ctx, b)
}

// orderedBlock reports whether a read on stream needs no wait.
func (r *Resource) orderedBlock(id core.BlockID, stream core.StreamID) bool {
	racing, known := r.below.Unordered(id, stream, core.Read)
	return known && len(racing) == 0 || !known && id.AllocStream == stream
}

// bisectBatch queues the comparison of blocks that are not about to be freed. One
// that fails, or is left out because the device is far behind, is made up for by
// the next, and by the last one before their free; windows are wider then.
func (r *Resource) bisectBatch(ctx context.Context, b *batch) {
	if b.check.blocks == 0 || r.checks.busy() {
		return
	}
	b.bisecting = true
	if r.compareBatch(ctx, launchBisect, b) != nil {
		r.count.unchecked.Add(uint64(b.check.blocks))
	}
}
