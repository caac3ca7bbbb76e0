package gputest

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// delays is a driver that puts a kernel which takes its time before a random
// half of all work. Streams that nothing orders then run far apart, so that a
// missing fence shows as a wrong value.
type delays struct {
	driver.Driver
	on      *hardware
	longest time.Duration
	module  driver.Module
	kernel  driver.Function
	// enqueued counts them: a test without delays would prove nothing.
	enqueued atomic.Uint64

	mu  sync.Mutex
	rng *rand.Rand
}

var _ driver.Wrapper = (*delays)(nil)

// delayed is the device behind delays, behind a way to drop waits.
func (h *hardware) delayed(seed uint64, longest time.Duration) (*drivertest.Faults, *delays, error) {
	d := &delays{Driver: h.Driver, on: h, longest: longest, rng: rand.New(rand.NewPCG(seed, 0))}
	var err error
	if d.module, err = h.ModuleLoad(testkernels.Image()); err == nil {
		d.kernel, err = h.ModuleFunction(d.module, testkernels.Delay)
	}
	return drivertest.NewFaults(d), d, err
}

// Unwrap is the device.
func (d *delays) Unwrap() driver.Driver { return d.Driver }

// draw is how long the next delay is; 0 for none.
func (d *delays) draw() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rng.IntN(2) == 0 {
		return 0
	}
	return time.Duration(1 + d.rng.Int64N(int64(d.longest)))
}

// StreamCreate makes some streams of a dry run slow: its kernels take no time.
func (d *delays) StreamCreate() (driver.Stream, error) {
	s, err := d.Driver.StreamCreate()
	if err == nil && d.on.sim != nil {
		err = d.on.sim.SlowStream(s, d.draw()/4)
	}
	return s, err
}

// before enqueues what the half draws.
func (d *delays) before(s driver.Stream) error {
	pause := d.draw()
	if pause == 0 {
		return nil
	}
	d.enqueued.Add(1)
	return d.Driver.Launch(&driver.Launch{Function: d.kernel, Stream: s, Args: []driver.Arg{driver.U64(uint64(pause))}})
}

// after is work behind a delay.
func (d *delays) after(s driver.Stream, work func() error) error {
	if err := d.before(s); err != nil {
		return err
	}
	return work()
}

func (d *delays) Launch(l *driver.Launch) error {
	return d.after(l.Stream, func() error { return d.Driver.Launch(l) })
}

func (d *delays) MemsetAsync(ptr uint64, value byte, n uint64, s driver.Stream) error {
	return d.after(s, func() error { return d.Driver.MemsetAsync(ptr, value, n, s) })
}

func (d *delays) CopyToDeviceAsync(dst uint64, src []byte, s driver.Stream) error {
	return d.after(s, func() error { return d.Driver.CopyToDeviceAsync(dst, src, s) })
}

func (d *delays) CopyToHostAsync(dst []byte, src uint64, s driver.Stream) error {
	return d.after(s, func() error { return d.Driver.CopyToHostAsync(dst, src, s) })
}

func (d *delays) CopyOnDeviceAsync(dst, src, n uint64, s driver.Stream) error {
	return d.after(s, func() error { return d.Driver.CopyOnDeviceAsync(dst, src, n, s) })
}

func (d *delays) CopyFromPeerAsync(dst uint64, peer driver.Driver, src, n uint64, s driver.Stream) error {
	return d.after(s, func() error { return d.Driver.CopyFromPeerAsync(dst, peer, src, n, s) })
}
