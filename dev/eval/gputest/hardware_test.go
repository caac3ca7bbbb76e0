package gputest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// hardware is a device that the tests share: its primary context is one for
// the process anyway, and is made once.
type hardware struct {
	driver.Driver
	// sim is the simulated device of a dry run, nil on a GPU.
	sim *sim.Device
	// pinned is page-locked memory, taken in pieces. It is allocated at the
	// start, because such an allocation may wait for a stalled stream.
	pinned driver.HostMemory
	taken  atomic.Uint64
	module driver.Module
	holder driver.Function
	// inUse is set while a runtime is open on the device.
	inUse atomic.Bool
}

// pinnedBytes is more than any case of the conformance suite moves.
const pinnedBytes = 32 << 20

var devices [2]struct {
	once sync.Once
	*hardware
	err error
}

// gpu returns the first device, or skips the test and says why.
func gpu(t testing.TB) *hardware {
	t.Helper()
	return device(t, 0)
}

func device(t testing.TB, ordinal int) *hardware {
	t.Helper()
	d := &devices[ordinal]
	d.once.Do(func() { d.hardware, d.err = openHardware(ordinal) })
	if errors.Is(d.err, libcuda.ErrNoDriver) {
		t.Skip(d.err)
	}
	must(t, d.err)
	return d.hardware
}

// twoGPUs returns the first two devices, or skips the test and says why.
func twoGPUs(t testing.TB) (first, second *hardware) {
	t.Helper()
	first = gpu(t)
	if !dryRun {
		lib, err := libcuda.Load()
		must(t, err)
		n, err := lib.DeviceCount()
		must(t, err)
		if n < 2 {
			t.Skip("one GPU only: this test needs two")
		}
	}
	return first, device(t, 1)
}

func openHardware(ordinal int) (*hardware, error) {
	h := &hardware{}
	if err := h.open(ordinal); err != nil {
		return nil, err
	}
	if err := h.prepare(); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

func (h *hardware) open(ordinal int) (err error) {
	if dryRun {
		if h.sim, err = sim.Open(sim.Config{Ordinal: ordinal}); err == nil {
			h.Driver, err = h.sim, testkernels.Register(h.sim)
		}
		return err
	}
	h.Driver, err = openGPU(ordinal)
	return err
}

// openGPU opens the device once more, in the same context.
func openGPU(ordinal int) (*libcuda.Device, error) {
	lib, err := libcuda.Load()
	if err != nil {
		return nil, err
	}
	return lib.Open(ordinal)
}

func (h *hardware) prepare() (err error) {
	if h.pinned, err = h.HostAlloc(pinnedBytes); err != nil || h.sim != nil {
		return err
	}
	if h.module, err = h.ModuleLoad(testkernels.Image()); err != nil {
		return err
	}
	h.holder, err = h.ModuleFunction(h.module, testkernels.Hold)
	return err
}

// take returns page-locked memory that stays until the next rewind.
func (h *hardware) take(n int) (memory []byte, ptr uint64, err error) {
	size := uint64(n+255) &^ 255
	end := h.taken.Add(size)
	if end > pinnedBytes {
		return nil, 0, fmt.Errorf("the test moves more than the %d bytes of page-locked memory that are there for it", pinnedBytes)
	}
	return h.pinned.Bytes[end-size:][:n], h.pinned.DevicePtr + end - size, nil
}

// rewind takes all page-locked memory back, when nothing can be using it.
func (h *hardware) rewind() error {
	err := h.Synchronize()
	h.taken.Store(0)
	return err
}

// hold keeps what is enqueued on s from now on from running until release is
// called, and at most ten seconds on a GPU.
func (h *hardware) hold(s driver.Stream) (release func(), err error) {
	if h.sim != nil {
		return h.sim.Hold(s)
	}
	memory, ptr, err := h.take(8)
	if err != nil {
		return nil, err
	}
	flag := (*atomic.Uint64)(unsafe.Pointer(&memory[0]))
	flag.Store(0)
	err = h.Launch(&driver.Launch{Function: h.holder, Stream: s, Args: []driver.Arg{driver.Ptr(ptr)}})
	return func() { flag.Store(1) }, err
}

func closeHardware() error {
	var errs []error
	for i := range devices {
		if h := devices[i].hardware; h != nil {
			errs = append(errs, h.HostFree(h.pinned))
			if h.module != 0 {
				errs = append(errs, h.ModuleUnload(h.module))
			}
			errs = append(errs, h.Close())
		}
	}
	return errors.Join(errs...)
}
