package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/gpucore"
)

// warpIllegalAddress is the driver's number of the exception.
const warpIllegalAddress gpucore.Exception = 14

// WatchFaults makes the device ask begun, whenever it says that work is done, whether a core dump has begun: if so the call fails
// with CUDA_ERROR_LAUNCH_FAILED, which is sticky. Each event is recorded as one with timing then, and StreamSynchronize waits for one,
// so that FalseSuccess deceives neither. begun must be safe for concurrent use, and must not block or call the device. launched, if not
// nil, is called with each kernel and its name before the kernel is enqueued, on the goroutine that does it, and must not keep the launch.
// WatchFaults is called before the device is used by others, does not block, and returns nil.
func (d *Device) WatchFaults(begun func() bool, launched func(l *driver.Launch, kernel string)) error {
	d.watch = faultWatch{begun, launched}
	return nil
}

// faultWatch is zero unless faults are watched.
type faultWatch struct {
	begun    func() bool
	launched func(*driver.Launch, string)
}

// unlessFaulting is the error of a call of m that would say that work is done.
func (d *Device) unlessFaulting(m *method) error {
	if d.watch.begun == nil || !d.watch.begun() {
		return nil
	}
	return driver.NewFault(m.entry)
}

// lose takes the context for an operation that reached for memory which is not mapped.
func (d *Device) lose(o *op, r Range) {
	if o.kernel == nil || d.config.CoreDump == "" {
		d.fail(driver.IllegalAddress, o.reached(r), o.work)
		return
	}
	if f := d.faults.lie.Swap(nil); f != nil {
		f.r = r
		o.fell = f
		return
	}
	d.dumpFault(o, r)
}

// fell is a fault of which the device is silent until said ends.
type fell struct {
	r    Range
	said context.Context
}

func (f *fell) wait(d *Device) {
	select {
	case <-f.said.Done():
	case <-d.dead:
	}
}

// lie says that the first in the queue of s is done, which has faulted.
func (d *Device) lie(s *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lying = true
	s.pretend()
	d.stir()
}

// pretend makes a stream that lies be done with what falls under that: all up to the next operation or event with timing. Its lock is held.
func (s *stream) pretend() {
	end := s.queue.first().end
	for _, o := range s.queue.waiting()[1:] {
		if o.kind != opMark || o.timed {
			break
		}
		end = o.end
	}
	s.done.Store(end)
	s.moved.Broadcast()
}

// dumpFault writes the core dump of a kernel that faulted, and then takes the context. What faults meanwhile waits.
func (d *Device) dumpFault(o *op, r Range) {
	d.dumped.Do(func() {
		if d.isDead() {
			return
		}
		why := o.reached(r)
		if err := d.writeDump(o, r); err != nil {
			why += ", and the core dump could not be written: " + err.Error()
		}
		d.fail(driver.IllegalAddress, why, o.work)
	})
}

func (d *Device) writeDump(o *op, r Range) error {
	at, bytes := d.unreachable(r)
	kind := map[core.Access]gpucore.AccessKind{core.Read: gpucore.AccessRead, core.Write: gpucore.AccessWrite, core.ReadWrite: gpucore.AccessAtomic}[r.Access]
	if kind == gpucore.AccessAtomic {
		bytes = min(max(bytes, 4), 8)
	}
	dump := &gpucore.Dump{
		Devices: []gpucore.Device{{Name: d.config.Name}},
		Grids:   append([]gpucore.Grid{o.grid()}, d.beside(o)...),
		Faults: []gpucore.Fault{{Kernel: o.name, Exception: warpIllegalAddress,
			Access: gpucore.Access{Kind: kind, Bytes: bytes, Lanes: []gpucore.Lane{{Address: at}}}}},
	}
	f, err := os.OpenFile(d.config.CoreDump, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(gpucore.Write(f, dump), f.Close())
}

// unreachable is the first byte of a range that is not mapped, and how many one instruction accesses there.
func (d *Device) unreachable(r Range) (at uint64, bytes uint32) {
	end := r.Ptr + min(r.Bytes, math.MaxUint64-r.Ptr)
	for at = r.Ptr; at < end && d.isMapped(at, 1); at = roundUp(at+1, Granule) {
	}
	if at >= end { // it was mapped again meanwhile
		at = r.Ptr
	}
	for bytes = 16; bytes > 1 && (at%uint64(bytes) != 0 || uint64(bytes) > end-at); bytes /= 2 {
	}
	return at, bytes
}

// grid is a launch in a core dump.
func (o *op) grid() gpucore.Grid {
	g := gpucore.Grid{ID: o.number, Kernel: o.name, Blocks: [3]uint32{o.exec.Grid.X, o.exec.Grid.Y, o.exec.Grid.Z},
		Threads: [3]uint32{o.exec.Block.X, o.exec.Block.Y, o.exec.Block.Z}}
	for _, a := range o.exec.args {
		size := int(min(max(a.Size, 1), 8))
		for len(g.Params)%size != 0 {
			g.Params = append(g.Params, 0)
		}
		g.Params = append(g.Params, binary.LittleEndian.AppendUint64(nil, a.Bits)[:size]...)
	}
	return g
}

// beside are the other launches that run, or that are the next of their stream.
func (d *Device) beside(o *op) (all []gpucore.Grid) {
	if d.chooser == nil { // or else it is held
		d.mu.Lock()
		defer d.mu.Unlock()
	}
	for _, s := range d.slots.owners {
		all = s.appendRunning(all, o)
	}
	return all
}

func (s *stream) appendRunning(all []gpucore.Grid, but *op) []gpucore.Grid {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.queue.first(); o != nil && o != but && o.kind == opLaunch {
		all = append(all, o.grid())
	}
	return all
}
