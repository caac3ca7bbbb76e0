package cuda_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

func (d *slowDriver) MemCreate(bytes uint64) (driver.MemHandle, error) {
	d.at(drivertest.MemCreate, false)
	return d.Driver.MemCreate(bytes)
}

func (d *slowDriver) MemMap(ptr, bytes uint64, h driver.MemHandle) error {
	d.at(drivertest.MemMap, false)
	return d.Driver.MemMap(ptr, bytes, h)
}

func (d *slowDriver) MemAccess(ptr, bytes uint64) error {
	d.at(drivertest.MemAccess, false)
	return d.Driver.MemAccess(ptr, bytes)
}

func (d *slowDriver) MemUnmap(ptr, bytes uint64) error {
	d.at(drivertest.MemUnmap, false)
	return d.Driver.MemUnmap(ptr, bytes)
}

func (d *slowDriver) MemRelease(h driver.MemHandle) error {
	d.at(drivertest.MemRelease, false)
	return d.Driver.MemRelease(h)
}

// While the driver maps memory for a stream, or takes it down, another stream gets what is there. Whether the books
// agree cannot be said then.
func TestAStreamIsServedWhileTheDriverMapsForAnother(t *testing.T) {
	for _, m := range []drivertest.Method{drivertest.MemCreate, drivertest.MemMap, drivertest.MemAccess, drivertest.MemUnmap, drivertest.MemRelease} {
		t.Run(string(m), func(t *testing.T) {
			b, slow := newSlowBench(t, pooled(1))
			s := b.leases(4)
			work := b.freeBehindWork(s[0], poolPage)
			b.Pool.SetLimit(0)
			if m == drivertest.MemUnmap || m == drivertest.MemRelease { // which needs a page that is done with
				b.free(b.alloc(s[3], 2*poolPage))
				b.sync(s[3])
			}
			arrived, release := slow.stall(t, m, false)
			var grown, served core.Block
			b.during(arrived, release, func() (err error) {
				if m == drivertest.MemUnmap || m == drivertest.MemRelease {
					return b.Pool.TrimPool(poolPage)
				}
				grown, err = b.Runtime.Allocate(ctx, core.Request{Bytes: 2 * poolPage, Stream: s[1].ID()})
				return err
			}, func() (err error) {
				if drift, err := b.Pool.Drift(); drift.Known || err != nil {
					return errors.Join(errors.New("the drift is known while pages are mapped"), err)
				}
				served, err = b.Runtime.Allocate(ctx, core.Request{Bytes: poolPage, Stream: s[2].ID()})
				return err
			})
			if steals := b.Pool.Stats().OwnPool.Steals.Count; steals != 1 {
				t.Errorf("%d steals", steals)
			}
			b.launch(s[2], writes(served))
			work()
			b.free(served)
			if grown.Bytes > 0 {
				b.free(grown)
			}
			b.drain()
			b.wantDrift("at the end", 0)
		})
	}
}
