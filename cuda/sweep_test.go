package cuda_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// sweep is a stack whose every step can fail. What was made is undone in the
// opposite order; an undo that fails is tried again when no call fails any
// more, and must then succeed: an error consumes nothing.
type sweep struct {
	*testing.T
	sim     *sim.Device
	faults  *drivertest.Faults
	streams *cuda.StreamPool
	async   *cuda.AsyncResource
	rt      *core.Runtime
	memory  *cuda.MemoryManager
	kernel  *cuda.Kernel
	did     deviceWork
	timed   int // launches that ended
	undo    []func() error
}

func (x *sweep) later(undo func() error) { x.undo = append(x.undo, undo) }

func (x *sweep) unwind() error {
	for len(x.undo) > 0 {
		last := len(x.undo) - 1
		if err := x.undo[last](); err != nil {
			return err
		}
		x.undo = x.undo[:last]
	}
	return nil
}

// open builds the stack over the failing driver.
func (x *sweep) open() (err error) {
	if x.streams, err = cuda.NewStreamPool(x.faults, cuda.StreamPoolConfig{Max: 4, DeviceWork: &x.did}); err != nil {
		return err
	}
	x.later(func() error { return x.streams.Close(ctx) })
	if x.async, err = cuda.NewAsyncResource(x.faults, x.streams, cuda.AsyncConfig{ReapInterval: -1, IsolatedAddresses: 2 * sim.Granule}); err != nil {
		return err
	}
	x.later(func() error { return x.async.Close(ctx) })
	if x.rt, err = core.NewRuntime(x.async, nil); err != nil {
		return err
	}
	x.later(x.settle)
	if x.memory, err = cuda.NewMemoryManager(x.faults, x.streams, x.rt); err != nil {
		return err
	}
	module, err := cuda.LoadModule(x.faults, driver.Image{Name: mixImage})
	if err != nil {
		return err
	}
	x.later(module.Unload)
	x.kernel, err = module.Kernel(mixKernel)
	return err
}

// settle waits for the device and checks that all was given back.
func (x *sweep) settle() error {
	if err := x.rt.Drain(ctx); err != nil {
		return err
	}
	s := x.rt.Stats()
	if s.Outstanding() != (core.Amount{}) || s.OpenIntents != 0 || s.Underflows != 0 || s.Poisoned != 0 {
		x.Errorf("books after all was freed: %+v", s)
	}
	if s.Allocations != s.Deallocations {
		x.Errorf("%d allocations and %d deallocations", s.Allocations, s.Deallocations)
	}
	return nil
}

// round opens the stack, runs the script and ends the stack.
func (x *sweep) round(script func(*sweep) error) error {
	err := x.open()
	if err == nil {
		err = script(x)
	}
	return errors.Join(err, x.unwind())
}

func (x *sweep) lease() (*cuda.Lease, error) {
	l, err := x.streams.Acquire(ctx, "sweep")
	if err == nil {
		x.later(l.Release)
	}
	return l, err
}

func (x *sweep) leases(n int) ([]*cuda.Lease, error) {
	var all []*cuda.Lease
	for range n {
		l, err := x.lease()
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// alloc allocates a block that is freed at the end, if not before.
func (x *sweep) alloc(on *cuda.Lease) (core.Block, error) {
	b, err := x.rt.Allocate(ctx, core.Request{Bytes: 256, Stream: on.ID(), Tag: "sweep"})
	if err == nil {
		x.later(func() error { return x.free(b) })
	}
	return b, err
}

// free frees a block unless that was done.
func (x *sweep) free(b core.Block) error {
	if x.rt.State(b.ID) != core.Live {
		return nil
	}
	_, err := x.rt.Deallocate(ctx, b.ID)
	if err != nil && x.rt.State(b.ID) != core.Live {
		x.Errorf("after a failed free the block is %v: %v", x.rt.State(b.ID), err)
	}
	return err
}

func (x *sweep) launch(on *cuda.Lease, uses ...[]use) error {
	all := join(uses)
	return x.kernel.Launch(ctx, x.rt, on, grid, declared(all), mixArgs(1, all)...)
}

// TestEveryDriverCallMayFail makes driver call 1, 2, 3, … of each script fail,
// until none is left. After each: no byte and no handle leaked, no counter
// off, every access ordered, and the next run of the script works.
func TestEveryDriverCallMayFail(t *testing.T) {
	table := map[drivertest.Method][2]uint64{}
	for _, s := range sweepScripts {
		t.Run(s.name, func(t *testing.T) {
			k := uint64(1)
			for ; sweepOnce(t, s.run, k, table); k++ {
				if t.Failed() {
					t.Fatalf("with call %d failing", k)
				}
			}
			t.Logf("%d calls were made to fail in turn", k-1)
		})
	}
	var lines []string
	for _, m := range drivertest.Methods() {
		n := table[m]
		lines = append(lines, fmt.Sprintf("%-18s %7d calls %5d failed", m, n[0], n[1]))
		if n[1] == 0 && !t.Failed() {
			t.Errorf("no script made %v fail", m)
		}
	}
	t.Logf("methods of the driver:\n%s", strings.Join(lines, "\n"))
}

// sweepOnce runs the script with its k-th call failing and reports whether
// there was a k-th call.
func sweepOnce(t *testing.T, script func(*sweep) error, k uint64, table map[drivertest.Method][2]uint64) bool {
	t.Helper()
	device, err := sim.Open(sim.Config{Bytes: 64 << 20, Schedule: sim.Seeded(1)}) // the same calls for every k
	must(t, err)
	defer func() { must(t, device.Close()) }() // does nothing if it is closed
	must(t, device.RegisterModule(mixImage, sim.Kernel{Name: mixKernel, Declare: declareMix, Run: runMix}))
	x := &sweep{T: t, sim: device, faults: drivertest.NewFaults(device)}

	x.faults.FailCall(k, driver.InvalidValue)
	err = x.round(script)
	if !x.failed() {
		must(t, err)
		err = x.faults.Close() // the last call of every script
	}
	failed := x.failed()
	x.count(table)
	x.faults.Clear()
	if x.faults.Calls(drivertest.Close) > 0 {
		must(t, device.Close())
		return failed
	}
	if err != nil && !errors.Is(err, core.ErrDriver) {
		t.Errorf("call %d: %v", k, err)
	}
	must(t, x.unwind())
	x.empty(k)

	if err := x.round(script); err != nil {
		t.Errorf("the run after failed call %d: %v", k, err)
	}
	x.empty(k)
	return failed
}

// failed reports whether a call was made to fail.
func (x *sweep) failed() bool {
	for _, m := range drivertest.Methods() {
		if x.faults.Failed(m) > 0 {
			return true
		}
	}
	return false
}

func (x *sweep) count(table map[drivertest.Method][2]uint64) {
	for _, m := range drivertest.Methods() {
		n := table[m]
		table[m] = [2]uint64{n[0] + x.faults.Calls(m), n[1] + x.faults.Failed(m)}
	}
}

// empty checks that nothing is left on the device, nothing was unordered, and of each launch that was timed the sink has heard.
func (x *sweep) empty(k uint64) {
	x.Helper()
	if told := len(x.did.done) + x.did.lost; told != x.timed {
		x.Errorf("after failed call %d the sink has heard of %d launches of %d", k, told, x.timed)
	}
	books := x.sim.Books()
	if want := (sim.Books{Reserved: books.Reserved}); books != want {
		x.Errorf("after failed call %d the device still holds %+v", k, books)
	}
	for _, f := range x.sim.Findings() {
		x.Errorf("after failed call %d the oracle: %v", k, f)
	}
}
