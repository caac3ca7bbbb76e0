package debugguard

import (
	"context"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/canary"
)

// filling is the filling of one block's red zones or of its poison: what every
// guarded block has done to it twice. It is pooled with all that it needs,
// because nobody who is given some of it keeps that.
type filling struct {
	guard   *Resource
	rec     *record
	poisons bool
	// enqueued is set if the device may do some of it.
	enqueued bool
	uses     [1]core.Use
	regions  [canary.PoisonSpots]core.Region
	run      func(context.Context, core.StreamID) (bool, error) // is enqueue
}

var fillings = sync.Pool{New: func() any {
	f := new(filling)
	f.run = f.enqueue
	return f
}}

// fillBlock queues the filling of a block's poison, or of its red zones, and says
// whether any of it was enqueued.
func (r *Resource) fillBlock(ctx context.Context, launch string, rec *record, poisons bool) (enqueued bool, err error) {
	f := fillings.Get().(*filling)
	defer fillings.Put(f)
	f.guard, f.rec, f.poisons, f.enqueued = r, rec, poisons, false
	f.uses[0] = core.Use{Block: rec.inner(), Access: core.Write}
	err = r.device(ctx, work{name: launch, stream: rec.stream(), uses: f.uses[:], enqueue: f.run})
	f.guard, f.rec = nil, nil
	return f.enqueued, err
}

func (f *filling) enqueue(ctx context.Context, stream core.StreamID) (bool, error) {
	var err error
	if f.poisons {
		err = f.guard.fillPoison(ctx, stream, f.rec, f.regions[:0])
	} else {
		err = f.guard.cfg.Device.Fill(ctx, stream, f.rec.guard.layout.RedZones(f.regions[:0], f.rec.generation()))
	}
	f.enqueued = !core.WasNotEnqueued(err)
	return f.enqueued, err
}

// arm fills the red zones of a fresh block. One that could not be armed is
// handed out all the same and never compared.
func (r *Resource) arm(ctx context.Context, rec *record) {
	if _, err := r.fillBlock(ctx, launchArm, rec, false); err != nil {
		r.count.unchecked.Add(1)
		return
	}
	rec.guard.armed = true
	rec.guard.clean.Store(r.launches.tick())
}
