package debugguard

import (
	"context"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/canary"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
)

// filling is the filling of one block's red zones, of its poison or of both: what every
// guarded block has done to it twice. It is pooled with all that it needs,
// because no callee keeps what it is given of it.
type filling struct {
	device   deviceops.Ops
	launches *launchLog
	rec      *ledger.Record
	what     parts
	// enqueued is set if the device may do some of it.
	enqueued bool
	uses     [1]core.Use
	regions  [2 + canary.PoisonSpots]deviceops.Region
	run      func(context.Context, core.StreamID) error // is enqueue
}

// parts are what of a block is filled.
type parts uint8

const (
	redZones parts = 1 << iota
	poison
)

var fillings = sync.Pool{New: func() any {
	f := new(filling)
	f.run = f.enqueue
	return f
}}

// fillingOf is a filling that the caller ends by endFilling.
func (r *Resource) fillingOf(rec *ledger.Record, what parts) *filling {
	f := fillings.Get().(*filling)
	f.device, f.launches, f.rec, f.what, f.enqueued = r.cfg.Device, &r.launches, rec, what, false
	f.uses[0] = core.Use{Block: rec.Inner(), Access: core.Write}
	return f
}

func (r *Resource) endFilling(f *filling) {
	f.device, f.launches, f.rec = nil, nil, nil // the pool keeps no guard
	fillings.Put(f)
}

// enqueue queues it. If that fails the block has no poison that could be compared.
func (f *filling) enqueue(ctx context.Context, stream core.StreamID) error {
	guard, g, regions := f.rec.Guard, f.rec.Generation(), f.regions[:0]
	if f.what&redZones != 0 {
		regions = guard.Layout.RedZones(regions, g)
	}
	if f.what&poison != 0 {
		guard.PoisonedAt = f.launches.tick()
		regions = guard.Layout.Poison(regions, g, guard.Whole)
	}
	err := f.device.Fill(ctx, stream, regions)
	f.enqueued = !core.WasNotEnqueued(err)
	guard.Unpoisoned = f.what&poison != 0 && err != nil
	return err
}

// fillBlock queues the filling of a block as a launch, and says whether any of it was
// enqueued.
func (r *Resource) fillBlock(ctx context.Context, launch string, rec *ledger.Record, what parts) (enqueued bool, err error) {
	f := r.fillingOf(rec, what)
	defer r.endFilling(f)
	err = r.device(ctx, work{name: launch, stream: rec.Stream(), uses: f.uses[:], enqueue: f.run})
	return f.enqueued, err
}

// arm fills the red zones of a fresh block, or a canary. What could not be armed is
// kept all the same, and never compared.
func (r *Resource) arm(ctx context.Context, launch string, rec *ledger.Record, what parts) {
	if _, err := r.fillBlock(ctx, launch, rec, what); err != nil {
		rec.Guard.Checked = true
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
	if r.Mode() < Sample || !rec.Guard.Armed {
		r.count.unchecked.Add(1)
		return false
	}
	stays := !rec.Guard.Isolated && r.makeRoom(ctx, rec.Footprint().Bytes)
	if !stays || r.hunting().Bisect {
		if !r.checks.full() {
			return r.compareAndPoison(ctx, rec, stays)
		}
		r.count.unchecked.Add(1)
	}
	if !stays {
		return false
	}
	poisoned, err := r.fillBlock(ctx, launchFree, rec, poison)
	if err != nil {
		r.count.unchecked.Add(1)
	}
	return poisoned
}

// compareAndPoison queues the comparison of the red zones, and behind it, if the block
// stays with the guard, the filling of it and of its red zones anew: one launch.
func (r *Resource) compareAndPoison(ctx context.Context, rec *ledger.Record, stays bool) (poisoned bool) {
	f := r.fillingOf(rec, redZones|poison)
	defer r.endFilling(f)
	b := newBatch(rec.Stream())
	b.redZones(rec)
	b.check.uses[0].Access = core.ReadWrite
	err := r.launchBatch(ctx, launchFree, b, func(ctx context.Context, stream core.StreamID) error {
		if err := r.compare(ctx, stream, b); err != nil || !stays {
			return err
		}
		poisoned = true
		rec.Guard.Filled.Add(1)
		if f.enqueue(ctx, stream) != nil {
			r.count.unchecked.Add(1) // the comparison is queued all the same
		}
		return nil
	})
	if err != nil {
		r.count.unchecked.Add(1)
	}
	return poisoned
}
