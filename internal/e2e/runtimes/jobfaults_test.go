package runtimes_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

// faultyJobs is a runtime over a driver whose calls can be made to fail, the same
// calls each time.
type faultyJobs struct {
	*testing.T
	rt     *fencepost.Runtime
	kernel *cuda.Kernel
	device *sim.Device
	faults *drivertest.Faults
}

func newFaultyJobs(t *testing.T, guard string) *faultyJobs {
	t.Helper()
	device, err := sim.Open(sim.Config{Bytes: 64 << 20, Schedule: sim.Seeded(1)})
	e2e.Succeed(t, "opening the device", err)
	f := &faultyJobs{T: t, device: device, faults: drivertest.NewFaults(device)}
	f.rt, err = fencepost.Open(t.Context(), fencepost.Config{Driver: f.faults, Guard: fencepost.GuardMode(guard), Async: cuda.AsyncConfig{ReapInterval: -1}})
	e2e.Succeed(t, "opening the runtime", err)
	f.kernel = loadAdd(t, f.rt)
	return f
}

// do is a job on two streams, under a reservation.
func (f *faultyJobs) do(ctx context.Context) error {
	var got, other []uint32
	err := f.rt.Do(ctx, "job", func(j *fencepost.Job) error {
		side, err := j.Fork()
		if err != nil {
			return err
		}
		if other, err = addOn(side, f.kernel, []uint32{1, 2}, 5); err != nil {
			return err
		}
		got, err = addOn(j, f.kernel, other, 5)
		if err == nil {
			_, err = fencepost.Upload(side, []uint32{1}) // for Do to wait for
		}
		return err
	}, fencepost.Reserve(4096, time.Hour))
	if err == nil && !slices.Equal(got, []uint32{11, 12}) {
		f.Errorf("a wrong result and no error: %v", got)
	}
	return err
}

// nothingLeft closes everything.
func (f *faultyJobs) nothingLeft() {
	f.Helper()
	nothingIsHeld(f.T, f.rt)
	left, err := f.rt.Close(context.Background())
	e2e.Succeed(f.T, "closing", err)
	if len(left.Leaks) > 0 || f.device.Books().LiveBlocks > 0 || f.device.FindingCount() > 0 || f.rt.Findings().Total() > 0 {
		f.Errorf("left over: %+v; the device: %+v, %v; found: %v", left, f.device.Books(), f.device.Findings(), f.rt.Findings().Recent())
	}
	e2e.Succeed(f.T, "closing the device", f.device.Close())
}

func TestAJobLeavesNothingBehindWhicheverDriverCallFails(t *testing.T) {
	for _, guard := range []string{"off", "hunt"} {
		t.Run(guard, func(t *testing.T) {
			k, step := uint64(1), uint64(1)
			if testing.Short() {
				step = 3
			}
			for reached := true; reached && !t.Failed(); k += step {
				f := newFaultyJobs(t, guard)
				before := f.faults.Total()
				f.faults.FailCall(k, driver.Unknown)
				err := f.do(t.Context())
				reached = f.faults.Total()-before >= k
				f.faults.Clear()
				if err != nil && !errors.Is(err, core.ErrDriver) {
					t.Errorf("call %d: %v", k, err)
				}
				if err := f.do(t.Context()); err != nil {
					t.Errorf("after call %d had failed: %v", k, err)
				}
				f.nothingLeft()
			}
			t.Logf("of %d calls each in %d was made to fail in turn", k-1-step, step)
			if k < 20 {
				t.Errorf("only %d calls were made: the job has lost its work", k-1-step)
			}
		})
	}
}

// A device that is lost takes the memory with it: nothing hangs, and the stream
// and the reservation come back all the same.
func TestAJobEndsWhereverTheDeviceIsLost(t *testing.T) {
	for k := uint64(1); ; k++ {
		f := newFaultyJobs(t, "off")
		before := f.faults.Total()
		f.faults.FailCall(k, driver.IllegalAddress)
		err := f.do(t.Context())
		reached := f.faults.Total()-before >= k
		f.faults.Clear()
		if lost := !f.rt.Health().OK; lost != (err != nil) {
			t.Errorf("call %d: %v, %+v", k, err, f.rt.Health())
		}
		if leased := f.rt.Streams().Stats().Leased; leased != 0 || f.rt.Stats().Claims != 0 {
			t.Errorf("call %d: %d leases and %d claims are held", k, leased, f.rt.Stats().Claims)
		}
		_, _ = f.rt.Close(context.Background())
		expect.Success(t, f.device.Close())
		if !reached || t.Failed() {
			return
		}
	}
}

// endsAt is a context that ends when it is asked for the k-th time.
type endsAt struct {
	context.Context
	left  atomic.Int64
	ended chan struct{}
}

func newEndsAt(parent context.Context, k int64) *endsAt {
	c := &endsAt{Context: parent, ended: make(chan struct{})}
	c.left.Store(k)
	return c
}

func (c *endsAt) asked() {
	if c.left.Add(-1) == 0 {
		close(c.ended)
	}
}

func (c *endsAt) Err() error {
	c.asked()
	select {
	case <-c.ended:
		return context.Canceled
	default:
		return nil
	}
}

func (c *endsAt) Done() <-chan struct{} {
	c.asked()
	return c.ended
}

func TestAJobLeavesNothingBehindWhereverItIsCancelled(t *testing.T) {
	f := newFaultyJobs(t, "hunt")
	k := int64(1)
	for ; !t.Failed(); k++ {
		ctx := newEndsAt(t.Context(), k)
		err := f.do(ctx)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled at %d: %v", k, err)
		}
		nothingIsHeld(t, f.rt)
		if ctx.left.Load() > 0 {
			break
		}
	}
	t.Logf("cancelled at %d points", k-1)
	if k < 10 {
		t.Errorf("only %d points: the job does not look at its context", k-1)
	}
	f.nothingLeft()
}
