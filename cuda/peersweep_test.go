package cuda_test

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// peerRound copies there and back between the stack under test and a peer, on
// streams of their own, and works on the blocks right behind the copies.
func peerRound(x, y *sweep) error {
	here, err := x.leases(2)
	if err != nil {
		return err
	}
	there, err := y.leases(2)
	if err != nil {
		return err
	}
	mine, err := x.bytes(here[0])
	if err != nil {
		return err
	}
	theirs, err := y.bytes(there[0])
	if err != nil {
		return err
	}
	return errors.Join(
		cuda.Memset(ctx, theirs, there[0].ID(), 5),
		cuda.CopyFromPeer(ctx, mine, here[1].ID(), theirs, there[1].ID()),
		cuda.Memset(ctx, theirs, there[0].ID(), 6),
		cuda.Memset(ctx, mine, here[0].ID(), 7),
		cuda.CopyFromPeer(ctx, theirs, there[1].ID(), mine, here[1].ID()),
		cuda.Memset(ctx, mine, here[0].ID(), 8),
		mine.Free(ctx), theirs.Free(ctx))
}

// bytes allocates a slice that is freed at the end, if not before.
func (x *sweep) bytes(on *cuda.Lease) (*cuda.Slice[byte], error) {
	s, err := cuda.Alloc[byte](ctx, x.memory, 256, cuda.AllocOptions{Stream: on.ID()})
	if err == nil {
		x.later(freeOnce(s))
	}
	return s, err
}

// newPeerSweep is the other device of a sweep.
func newPeerSweep(t *testing.T, ordinal int) *sweep {
	t.Helper()
	device, err := sim.Open(sim.Config{Ordinal: ordinal, Bytes: 64 << 20, Schedule: sim.Seeded(2)})
	must(t, err)
	t.Cleanup(func() { must(t, device.Close()) })
	must(t, device.RegisterModule(mixImage, sim.Kernel{Name: mixKernel, Declare: declareMix, Run: runMix}))
	return &sweep{T: t, sim: device, faults: drivertest.NewFaults(device)}
}

// sweepPeers is the script for the table of all methods: there the peer's
// calls do not fail.
func sweepPeers(x *sweep) error {
	y := newPeerSweep(x.T, 1)
	err := y.open()
	if err == nil {
		err = peerRound(x, y)
	}
	x.later(y.unwind) // first: it must not wait for what x still has to do
	return err
}

// TestEveryCallOfAPeerCopyMayFail makes call 1, 2, 3, … of either device fail.
// After each: nothing leaked on either, every access ordered on both, and the
// next round works.
func TestEveryCallOfAPeerCopyMayFail(t *testing.T) {
	for failing := range 2 {
		for k := uint64(1); ; k++ {
			ends := [2]*sweep{newPeerSweep(t, 0), newPeerSweep(t, 1)}
			for _, x := range ends {
				must(t, x.open())
			}
			x := ends[failing]
			x.faults.FailCall(k, driver.InvalidValue)
			err := peerRound(ends[0], ends[1])
			failed := x.failed()
			x.faults.Clear()
			if failed != (err != nil) && !failed {
				t.Fatalf("call %d of device %d: %v", k, failing, err)
			}
			if err != nil && !errors.Is(err, core.ErrDriver) && !errors.Is(err, core.ErrUseAfterFree) {
				t.Errorf("call %d of device %d: %v", k, failing, err)
			}
			must(t, peerRound(ends[0], ends[1]))
			must(t, ends[0].unwind())
			must(t, ends[1].unwind())
			ends[0].empty(k)
			ends[1].empty(k)
			if t.Failed() {
				t.Fatalf("with call %d of device %d failing: %v", k, failing, err)
			}
			if !failed {
				t.Logf("%d calls of device %d were made to fail", k-1, failing)
				break
			}
		}
	}
}
