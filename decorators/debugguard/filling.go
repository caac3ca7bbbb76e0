package debugguard

import (
	"context"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/canary"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
)

// filling is the filling of one block's red zones or of its poison: what every
// guarded block has done to it twice. It is pooled with all that it needs,
// because nobody who is given some of it keeps that.
type filling struct {
	guard   *Resource
	rec     *ledger.Record
	poisons bool
	// enqueued is set if the device may do some of it.
	enqueued bool
	uses     [1]core.Use
	regions  [canary.PoisonSpots]core.Region
	run      func(context.Context, core.StreamID) error // is enqueue
}

var fillings = sync.Pool{New: func() any {
	f := new(filling)
	f.run = f.enqueue
	return f
}}

// fillBlock queues the filling of a block's poison, or of its red zones, and says
// whether any of it was enqueued.
func (r *Resource) fillBlock(ctx context.Context, launch string, rec *ledger.Record, poisons bool) (enqueued bool, err error) {
	f := fillings.Get().(*filling)
	defer fillings.Put(f)
	f.guard, f.rec, f.poisons, f.enqueued = r, rec, poisons, false
	f.uses[0] = core.Use{Block: rec.Inner(), Access: core.Write}
	err = r.device(ctx, work{name: launch, stream: rec.Stream(), uses: f.uses[:], enqueue: f.run})
	f.guard, f.rec = nil, nil
	return f.enqueued, err
}

func (f *filling) enqueue(ctx context.Context, stream core.StreamID) (err error) {
	if f.poisons {
		err = f.guard.fillPoison(ctx, stream, f.rec, f.regions[:0])
	} else {
		err = f.guard.cfg.Device.Fill(ctx, stream, f.rec.Guard.Layout.RedZones(f.regions[:0], f.rec.Generation()))
	}
	f.enqueued = !core.WasNotEnqueued(err)
	return err
}

// arm fills the red zones of a fresh block. One that could not be armed is
// handed out all the same and never compared.
func (r *Resource) arm(ctx context.Context, rec *ledger.Record) {
	if _, err := r.fillBlock(ctx, launchArm, rec, false); err != nil {
		r.count.unchecked.Add(1)
		return
	}
	rec.Guard.Armed = true
	rec.Guard.Clean.Store(r.launches.tick())
}

// poison fills a freed block with poison. It reports whether the block may hold
// some, and so belongs into quarantine, which it does not if the guard is off
// by now, the filling cannot be queued, the block is too large, or it is
// isolated.
//
// The red zones stay as they were armed: they are compared with the poison when
// the block leaves quarantine, many blocks at a time. Where there will be no
// such time, or each step is compared on its own, it is done here and now.
func (r *Resource) poison(ctx context.Context, rec *ledger.Record) (poisoned bool) {
	kept := !rec.Guard.Isolated && r.hasRoom(ctx, rec.Footprint().Bytes)
	compared := !kept || r.hunting(bisecting)
	if compared && r.checks.full() {
		compared = false
		r.count.unchecked.Add(1)
	}
	switch {
	case r.Mode() < Sample || !rec.Guard.Armed:
		r.count.unchecked.Add(1)
		return false
	case !kept && !compared:
		return false
	case compared:
		return r.compareAndPoison(ctx, rec, kept)
	}
	poisoned, err := r.fillBlock(ctx, launchFree, rec, true)
	if err != nil {
		r.count.unchecked.Add(1)
	}
	return poisoned
}

// compareAndPoison queues the comparison of the red zones, and behind it the
// filling of a block that is kept, and of its red zones anew.
func (r *Resource) compareAndPoison(ctx context.Context, rec *ledger.Record, kept bool) (poisoned bool) {
	b := newBatch(rec.Stream())
	b.redZones(rec)
	b.uses[0].Access = core.ReadWrite
	err := r.launchBatch(ctx, launchFree, b, func(ctx context.Context, stream core.StreamID) error {
		if err := r.compare(ctx, stream, b); err != nil || !kept {
			return err
		}
		poisoned = true
		rec.Guard.Filled.Add(1)
		if r.fillPoison(ctx, stream, rec, rec.Guard.Layout.RedZones(nil, rec.Generation())) != nil {
			r.count.unchecked.Add(1) // the comparison is queued all the same
		}
		return nil
	})
	if err != nil {
		r.count.unchecked.Add(1)
	}
	return poisoned
}

// fillPoison queues the filling of a block with poison, and of other regions of
// it. If it fails the block has no poison that could be compared.
func (r *Resource) fillPoison(ctx context.Context, stream core.StreamID, rec *ledger.Record, others []core.Region) error {
	rec.Guard.PoisonedAt = r.launches.tick()
	err := r.cfg.Device.Fill(ctx, stream, rec.Guard.Layout.Poison(others, rec.Generation(), rec.Guard.Whole))
	rec.Guard.Unpoisoned = err != nil
	return err
}
