package debugguard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/canary"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
)

// A block is sealed when its owner declares it read-only. A declared write is
// found when it is announced. One that was not declared is found by a checksum,
// which is taken on the device behind the last declared write and compared at
// the end of the seal, at the free, by CheckSeals, and after launches when
// bisecting.

const (
	launchSeal = "gpumem.guard.seal"
	// sealParts is into how many parts a block is summed up at most, none
	// smaller than sealPart bytes, so that a finding can say where to look.
	sealParts = 64
	sealPart  = 4 << 10
)

// seal is a block that is declared read-only.
type seal struct {
	block core.Block // as its owner knows it
	inner core.BlockID
	// set is what Seal ends with: until then a declared write or a free takes the
	// seal away without a word, and Seal refuses. The lock of seals guards it.
	set bool
	// clears is that of seals where it began.
	clears int
	// clean is the tick of the last sum queued.
	clean atomic.Uint64
	// sums are those of the parts at the last verdict, nil before the first.
	// They belong to who reads verdicts.
	sums []uint64
}

// parts are the regions of the block that are summed up.
func (s *seal) parts(to []deviceops.Region) []deviceops.Region {
	size := max(sealPart, canary.RoundUp((s.block.Bytes+sealParts-1)/sealParts, sealPart))
	for at := uint64(0); at < s.block.Bytes; at += size {
		to = append(to, deviceops.Region{Ptr: s.block.ID.Ptr + at, Bytes: min(size, s.block.Bytes-at)})
	}
	return to
}

// Seal declares a live block read-only until Unseal or its free. From then on
// a write that a launch declares is a finding of kind sealed-write, refused with a
// [core.StreamMisuseError] if Config.Refuse says so; otherwise it ends the
// seal. In mode Sample and Hunt, with device operations, the block's checksum
// is taken too, so that an undeclared write is found when it is next
// compared. RecordUse is no declared write: it does not say what it does.
//
// In mode Off, and for a block allocated while the guard was, Seal does
// nothing; turning the guard off ends all seals. Errors are a [core.UseAfterFreeError] for a block that is not live,
// a [core.StreamMisuseError] for one with an announced write (in mode Ledger
// such a write does not count), and those of the layers below; the block is not
// sealed then. It does not block on the device,
// except over an upstream without use tracking. A sealed block is compared, and sealed anew.
func (r *Resource) Seal(ctx context.Context, id core.BlockID) error {
	if r.Mode() == Off {
		return nil
	}
	rec, err := r.usable(late{op: "Seal", id: id, stream: id.AllocStream})
	if err != nil {
		return err
	}
	if rec == nil {
		return r.sealUnknown(id)
	}
	s := &seal{block: rec.Block()}
	s.inner = s.block.ID
	if rec.Guard != nil {
		s.inner = rec.Inner()
	}
	rec.Unlock()
	_ = r.breakSeal(ctx, r.seals.get(id.Generation)) // what could not be compared is counted
	r.seals.put(s)
	if err = r.setSeal(ctx, s, rec); err != nil || r.Mode() == Off { // turned off meanwhile
		r.seals.annul(s)
	}
	return err
}

// setSeal completes a seal that everybody can find already. A launch that
// declares a write enters itself before it looks for seals once more, and a
// free retires the block before it does, so that of two at the same moment at
// least one sees the other.
func (r *Resource) setSeal(ctx context.Context, s *seal, rec *ledger.Record) error {
	id := s.block.ID
	written := r.launches.writing(id.Generation)
	if !written {
		if err := r.sum(ctx, s, false); err != nil {
			return err
		}
		written = !r.seals.complete(s)
	}
	switch {
	case !rec.IsLive(id.Generation):
		return &core.UseAfterFreeError{Op: "Seal", Generation: id.Generation, Block: id, State: r.State(id), Tag: s.block.Tag}
	case written && r.Mode() != Off:
		return &core.StreamMisuseError{Op: "Seal", Block: id, Stream: id.AllocStream, Reason: "a launch that writes the block is announced: end it first"}
	}
	return nil
}

// sealUnknown is Seal of a block without a record.
func (r *Resource) sealUnknown(id core.BlockID) error {
	if id.Ordinal != r.upstream.Ordinal() {
		return &core.StreamMisuseError{Op: "Seal", Block: id, Stream: id.AllocStream,
			Reason: fmt.Sprintf("the block belongs to device %d, this resource serves device %d", id.Ordinal, r.Ordinal())}
	}
	if state := r.upstream.State(id); state != core.Live {
		return &core.UseAfterFreeError{Op: "Seal", Generation: id.Generation, Block: id, State: state}
	}
	return nil
}

// Unseal ends a seal, after its last comparison was queued, whose verdict comes
// later like all. It does nothing for a block that is not sealed. The error is
// that of the comparison; the seal ends all the same.
func (r *Resource) Unseal(ctx context.Context, id core.BlockID) error {
	return r.breakSeal(ctx, r.seals.get(id.Generation))
}

// breakSeal ends a seal, nil for none.
func (r *Resource) breakSeal(ctx context.Context, s *seal) error {
	if !r.seals.remove(s) {
		return nil
	}
	r.seals.awaitQueued(ctx)
	return r.sum(ctx, s, true)
}

// CheckSeals queues the comparison of every sealed block; verdicts come later.
// Drain waits for them. The error joins those of blocks that could not be
// compared, which stay sealed.
func (r *Resource) CheckSeals(ctx context.Context) error {
	var errs []error
	for _, s := range r.seals.list() {
		if err := r.sum(ctx, s, false); err != nil && r.seals.holds(s) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// sum queues the checksum of a block, behind what was declared to write it; of
// one whose seal has ended only if that is what it ends with. The first verdict
// about a seal is what later ones are compared with. Where nothing is done on
// the device, neither is this.
func (r *Resource) sum(ctx context.Context, s *seal, ended bool) error {
	if r.cfg.Device == nil || r.Mode() < Sample {
		return nil
	}
	return r.sumUp(ctx, launchSeal, s.block.ID.AllocStream, ended, s)
}

// sumUp queues a batch of checksums.
func (r *Resource) sumUp(ctx context.Context, name string, stream core.StreamID, ended bool, some ...*seal) error {
	if r.checks.full() {
		r.count.unchecked.Add(uint64(len(some)))
		return nil
	}
	a := &summing{check: check{stream: stream, at: r.launches.tick()}, seals: some, ended: ended}
	for _, s := range some {
		a.check.uses = append(a.check.uses, core.Use{Block: s.inner, Access: core.Read})
	}
	err := r.ask(ctx, name, &a.check, func(ctx context.Context, stream core.StreamID) error {
		a.check.stream = stream
		return r.enqueueSums(ctx, a)
	})
	if errors.Is(err, errAllEnded) {
		return nil
	}
	if err != nil {
		r.count.unchecked.Add(uint64(len(a.seals)))
		return fmt.Errorf("checking seals: %w", err)
	}
	for i, s := range a.seals {
		if !a.isLate(i) {
			raise(&s.clean, a.check.at)
		}
	}
	return nil
}

// summing is a batch of checksums of sealed blocks.
type summing struct {
	check check
	seals []*seal
	// ended is set if the batch is the last of its seals.
	ended bool
	from  []uint64 // the tick of each seal's last sum
	late  []bool   // the seals that ended before the batch was queued; nil for none
}

// isLate reports whether the i-th seal ended before the batch was queued: its sum means nothing.
func (a *summing) isLate(i int) bool { return i < len(a.late) && a.late[i] }

// errAllEnded is what enqueueSums says of seals that have all ended: there is nothing
// to sum up.
var errAllEnded = core.NotEnqueued(errors.New("every seal has ended"))

// enqueueSums queues the checksums; the verdict comes later. A seal that has ended since it was
// chosen is left out: its owner may be writing. So is one that ends before they are queued, once
// they are. No lock is held while the device queues them: the driver may wait there for the
// program's code, and that may end seals.
func (r *Resource) enqueueSums(ctx context.Context, a *summing) error {
	if !r.tracked {
		r.seals.queueing.Add(1)
		defer func() {
			r.seals.queueing.Add(-1)
			r.seals.queued.step()
		}()
	}
	if !a.ended {
		a.seals = slices.DeleteFunc(a.seals, func(s *seal) bool { return !r.seals.holds(s) })
	}
	if len(a.seals) == 0 {
		return errAllEnded
	}
	var regions []deviceops.Region
	for _, s := range a.seals {
		regions = s.parts(regions)
		a.from = append(a.from, s.clean.Load())
	}
	c, err := r.cfg.Device.Checksum(ctx, a.check.stream, regions)
	if err != nil {
		return err
	}
	a.check.blocks = len(a.seals)
	r.seals.whileNoneEnds(a.seals, func(ended []bool) {
		if !a.ended {
			a.late = ended
		}
		r.awaitVerdict(&a.check, c, func() error { return r.judgeSums(a, c) })
	})
	return nil
}

// judgeSums compares the sums with those before. Of a seal that was changed
// the new ones count from here on, so that each change is told once.
func (r *Resource) judgeSums(a *summing, c deviceops.Checksums) error {
	sums, err := c.Sums()
	if err != nil {
		return err
	}
	for i, s := range a.seals {
		n := len(s.parts(nil))
		now, before := slices.Clone(sums[:n]), s.sums
		if sums = sums[n:]; a.isLate(i) {
			continue
		}
		s.sums = now
		if before != nil && !slices.Equal(before, now) {
			r.reportBroken(s, window{from: a.from[i], to: a.check.at, stream: a.check.stream}, before, now)
		}
	}
	return nil
}

// reportBroken tells of a sealed block whose bytes changed though no launch
// declared to write it; checks.reading must be held.
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
	if r.hunting().Bisect {
		w.few = bisectSuspects
	}
	r.suspectWithin(&f, w)
	f.Text = fmt.Sprintf("generation %s tagged %q was declared read-only and changed, though no launch declared to write it: %d of %d parts differ, the first the %d bytes at offset %d; %s",
		s.block.ID.Generation, s.block.Tag, len(changed), len(parts), first.Bytes, f.Offset, doers(&f))
	f.Err = &core.StreamMisuseError{Op: "guard check", Block: s.block.ID, Stream: w.stream, Reason: "a block that was declared read-only has changed"}
	r.checks.find(f)
}

// sealFinding begins a finding about a sealed block.
func (r *Resource) sealFinding(s *seal) core.Finding {
	rec := r.ledger.LockAny(s.block.ID)
	if rec == nil { // the ledger has forgotten it
		return core.Finding{Kind: names.FindingSealedWrite, Victim: s.block}
	}
	defer rec.Unlock()
	f := r.victim(names.FindingSealedWrite, rec)
	f.Origin = rec.Origin()
	return f
}
