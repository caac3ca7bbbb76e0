package sim

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// faults are what a test injects into the device's insides. To make a given
// call fail with a given code, see package drivertest.
type faults struct {
	sticky     countdown
	code       atomic.Int64
	memory     countdown
	neverReady countdown
	dropWait   countdown
	dropWaits  atomic.Bool
	lie        atomic.Pointer[fell] // the next fault, of which the device is silent for a while

	mu    sync.Mutex
	gates []context.CancelFunc // to open them
}

// countdown comes due once, at the n-th time it is asked.
type countdown struct{ left atomic.Int64 }

func (c *countdown) due() bool { return c.left.Load() > 0 && c.left.Add(-1) == 0 }

func (c *countdown) arm(n uint64) { c.left.Store(int64(n)) }

// gateForRecord is nil but for the record that was told never to be ready.
func (f *faults) gateForRecord() context.Context {
	if !f.neverReady.due() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g, open := context.WithCancel(context.Background())
	f.gates = append(f.gates, open)
	return g
}

// LoseContext takes the context with a sticky error of the given code, such as
// [driver.IllegalAddress], now. Queued work is discarded and every later call
// but Close fails with the code.
func (d *Device) LoseContext(code int) {
	d.fail(code, "", nil)
	d.kill()
}

// StickyAt makes the n-th driver call from now lose the context with the given
// code. 0 disarms.
func (d *Device) StickyAt(n uint64, code int) {
	d.faults.code.Store(int64(code))
	d.faults.sticky.arm(n)
}

// OutOfMemoryAt makes the n-th allocation from now (MemAlloc, MemAllocAsync,
// HostAlloc or MemCreate) fail with CUDA_ERROR_OUT_OF_MEMORY. 0 disarms.
func (d *Device) OutOfMemoryAt(n uint64) { d.faults.memory.arm(n) }

// NeverReadyAt makes what the n-th EventRecord from now records never ready:
// queries say so, waits and synchronisations block until ReleaseEvents. 0
// disarms.
func (d *Device) NeverReadyAt(n uint64) { d.faults.neverReady.arm(n) }

// ReleaseEvents ends the effect of NeverReadyAt on all events so far.
func (d *Device) ReleaseEvents() {
	d.faults.mu.Lock()
	gates := d.faults.gates
	d.faults.gates = nil
	d.faults.mu.Unlock()
	d.openGates(gates...)
}

// openGates opens gates and wakes synchronisations that found nothing to run.
func (d *Device) openGates(gates ...context.CancelFunc) {
	for _, open := range gates {
		open()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stalled.Broadcast()
	d.stir()
}

// FalseSuccess makes the device say of the next kernel that faults that it is done, until end is called, as CUDA's driver has been seen
// to do where core dumps are armed (docs/guard.md): of its stream, and of events without timing that are recorded behind it
// with nothing else between. Events with timing are not done. At the end the dump is written and the context lost. Without
// [Config.CoreDump] nothing comes of it. It does not block; end may be called more than once.
func (d *Device) FalseSuccess() (end func()) {
	said, open := context.WithCancel(context.Background())
	d.faults.lie.Store(&fell{said: said})
	return func() { d.openGates(open) }
}

// DropWaitAt makes the n-th StreamWait or StreamWaitPeer from now succeed without queueing
// anything; the oracle takes no order from it. 0 disarms.
func (d *Device) DropWaitAt(n uint64) { d.faults.dropWait.arm(n) }

// DropWaits does what DropWaitAt does to every one of them while on is true.
func (d *Device) DropWaits(on bool) { d.faults.dropWaits.Store(on) }

// SlowStream delays each operation of s by at least delay; 0 ends it. In a
// seeded schedule the stream is merely picked less often.
func (d *Device) SlowStream(h driver.Stream, delay time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return d.state(mStreamQuery)
	}
	s, err := d.streams.named(mStreamQuery, h)
	if err != nil {
		return err
	}
	s.slow.Store(int64(delay))
	return nil
}

// Hold queues an operation on s that does not end before release is called.
// It lets a test keep work pending for exactly as long as it wants. It does
// not block; release may be called more than once.
func (d *Device) Hold(h driver.Stream) (release func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.streams.named(mStreamWait, h)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(d.state(mStreamWait), s.prohibited(mStreamWait)); err != nil {
		return nil, err
	}
	d.catchUp(s)
	g, open := context.WithCancel(context.Background())
	o := newOp(opWait, "hold")
	o.waitFor = record{gate: g}
	d.push(s, o)
	return func() { d.openGates(open) }, nil
}
