package cuda_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// An unmap takes long, so nobody on a launch path or in a free makes one, even
// where he sees that the device is done with an isolated block.
func TestOnlyReapsAndIsolatedAllocationsUnmap(t *testing.T) {
	b := newBench(t)
	s := b.leases(1)[0]
	const large = 40 << 20 // is looked at as soon as it is freed
	passed := func() {     // frees a block, and waits until the device has passed that
		b.Helper()
		b.free(b.isolate(s, large))
		b.sync(s)
	}
	never := func(what string, f func()) {
		b.Helper()
		if calls := b.calls(f); strings.Contains(calls, "MemUn") {
			t.Errorf("%s makes the calls %s", what, calls)
		}
	}
	passed()
	inUse := b.isolate(s, large)
	b.mapped("unmapped by the isolated allocation", large/sim.Granule)
	passed()
	ticket := b.prepare(s, writes(inUse))
	b.free(inUse)
	never("the end of a launch", func() { must(t, b.Runtime.FinishUse(ctx, ticket)) })
	b.sync(s)
	never("an allocation", func() {
		for range 40 { // of which one looks at the queue
			b.free(b.alloc(s, 256))
		}
	})
	b.mapped("set aside", 2*large/sim.Granule)
	equal(t, "pending blocks of the caller's", b.Runtime.State(inUse.ID), core.Retired)
	must(t, b.Runtime.ReapPending(ctx))
	b.mapped("reaped", 0)
	b.drain()
}

// refusingRange is a device that does not take the addresses back that it gave
// out as its n-th range.
type refusingRange struct {
	driver.Driver
	n, made int
	ptr     uint64
}

func (r *refusingRange) MemReserve(bytes uint64) (uint64, error) {
	ptr, err := r.Driver.MemReserve(bytes)
	if r.made++; r.made == r.n {
		r.ptr = ptr
	}
	return ptr, err
}

func (r *refusingRange) MemUnreserve(ptr, bytes uint64) error {
	if ptr == r.ptr {
		return driver.NewError("MemUnreserve", driver.InvalidValue)
	}
	return r.Driver.MemUnreserve(ptr, bytes)
}

func TestAddressesThatCannotBeGivenBackStandInNoOthersWay(t *testing.T) {
	for n := 1; n <= 3; n++ {
		refusing := &refusingRange{n: n}
		b := newBench(t, keeping(4), func(c *teststack.Config) {
			wrap := c.Wrap
			c.Wrap = func(d driver.Driver) driver.Driver {
				refusing.Driver = wrap(d)
				return refusing
			}
		})
		s := b.leases(1)[0]
		for i := range 9 {
			b.free(b.isolate(s, 100))
			if err := b.Runtime.Drain(ctx); (err != nil) != (i >= 4+n-1) || err != nil && !errors.Is(err, core.ErrDriver) {
				t.Errorf("range %d, block %d: %v", n, i, err)
			}
			b.mapped("drained", 0)
		}
		equal(t, "ranges reserved", b.Sim.Books().Reservations, 4)
		refusing.ptr = 0
		b.free(b.isolate(s, 100))
		b.drain()
		equal(t, "ranges reserved", b.Sim.Books().Reservations, 4)
	}
}
