package debugguard

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// summing is a batch of checksums of sealed blocks.
type summing struct {
	seals []*seal
	// ended is set if the batch is the last of its seals.
	ended  bool
	stream core.StreamID
	at     uint64
	from   []uint64 // the tick of each seal's last sum
	counts []int    // how many parts each has
	void   atomic.Bool
}

// enqueueSums queues the checksums; the verdict comes later. A seal that has
// ended since it was chosen is left out: its owner may be writing. Until they
// are queued no other ends.
func (r *Resource) enqueueSums(ctx context.Context, a *summing) (enqueued bool, err error) {
	r.seals.endLock.RLock()
	defer r.seals.endLock.RUnlock()
	if !a.ended {
		a.seals = slices.DeleteFunc(a.seals, func(s *seal) bool { return !r.seals.holds(s) })
	}
	if len(a.seals) == 0 {
		return false, nil
	}
	var regions []core.Region
	for _, s := range a.seals {
		n := len(regions)
		regions = s.parts(regions)
		a.counts = append(a.counts, len(regions)-n)
		a.from = append(a.from, s.clean.Load())
	}
	c, err := r.cfg.Device.Checksum(ctx, a.stream, regions)
	if err != nil {
		return !core.WasNotEnqueued(err), err
	}
	r.awaitVerdict(&check{answer: c, void: &a.void, blocks: len(a.seals), judge: func() error { return r.judgeSums(a, c) }})
	return true, nil
}

// judgeSums compares the sums with those before. Of a seal that was changed
// the new ones count from here on, so that each change is told once.
func (r *Resource) judgeSums(a *summing, c core.Checksums) error {
	sums, err := c.Sums()
	if err != nil {
		return err
	}
	for i, s := range a.seals {
		now := slices.Clone(sums[:a.counts[i]])
		sums = sums[a.counts[i]:]
		before := s.sums
		s.sums = now
		if before != nil && !slices.Equal(before, now) {
			r.reportBroken(s, window{from: a.from[i], to: a.at, stream: a.stream}, before, now)
		}
	}
	return nil
}

// reportBroken tells of a sealed block whose bytes changed though no launch
// declared to write it.
func (r *Resource) reportBroken(s *seal, w window, before, now []uint64) {
	var changed []int
	for i := range now {
		if now[i] != before[i] {
			changed = append(changed, i)
		}
	}
	parts := s.parts(nil)
	first := parts[changed[0]]
	f := r.sealFinding(s)
	f.Offset = int64(first.Ptr - s.block.ID.Ptr)
	if r.hunting(bisecting) {
		w.few = bisectSuspects
	}
	f.Suspects, f.MoreSuspects = r.launches.suspects(w, nil, r.cfg.Suspects)
	f.Text = fmt.Sprintf("generation %s tagged %q was declared read-only and changed, though no launch declared to write it: %d of %d parts differ, the first the %d bytes at offset %d; %s",
		s.block.ID.Generation, s.block.Tag, len(changed), len(parts), first.Bytes, f.Offset, doers(&f))
	f.Err = &core.StreamMisuseError{Op: "guard check", Block: s.block.ID, Stream: w.stream, Reason: "a block that was declared read-only has changed"}
	r.report(f)
}

// sealFinding begins a finding about a sealed block.
func (r *Resource) sealFinding(s *seal) core.Finding {
	rec := r.ledger.lockAny(s.block.ID)
	if rec == nil { // the ledger has forgotten it
		return core.Finding{Kind: core.FindingSealedWrite, Victim: s.block}
	}
	defer rec.mu.Unlock()
	return r.victim(core.FindingSealedWrite, rec)
}
