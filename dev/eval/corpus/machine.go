package corpus

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// simBytes is the memory of a simulated device: a few granules more than any
// program needs.
const simBytes = 256 << 20

// simBytesIsolated is the same where each block takes granules of its own.
const simBytesIsolated = 4 << 30

// Machine is where programs run, one after the other: a simulated device for
// each, or a GPU that they share. It is not safe for concurrent use.
type Machine struct {
	// gpu is nil where devices are simulated, and where the runtime opens it.
	gpu   driver.Driver
	onGPU bool
	// properties are those of a GPU that the runtime has opened.
	properties driver.Properties
	// pinned holds the flags of held streams. It is allocated at the start: an
	// allocation may wait for a stream that is held.
	pinned driver.HostMemory
	taken  int
	module driver.Module
	holder driver.Function
}

// OnSim is a machine without a GPU.
func OnSim() *Machine { return &Machine{} }

// OnGPU opens the first GPU. The error matches [libcuda.ErrNoDriver] where
// there is none.
func OnGPU() (*Machine, error) {
	lib, err := libcuda.Load()
	if err != nil {
		return nil, err
	}
	d, err := lib.Open(0)
	if err != nil {
		return nil, err
	}
	m := &Machine{gpu: d, onGPU: true}
	if err := m.prepare(); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// ToOpen is a machine with a GPU that the runtime of its one program opens.
func ToOpen() *Machine { return &Machine{onGPU: true} }

func (m *Machine) kind() fencepost.DeviceKind {
	if m.onGPU {
		return fencepost.CUDA
	}
	return fencepost.Sim
}

const flagBytes = 256

func (m *Machine) prepare() (err error) {
	if m.pinned, err = m.gpu.HostAlloc(64 * flagBytes); err != nil {
		return err
	}
	if m.module, err = m.gpu.ModuleLoad(testkernels.Image()); err != nil {
		return err
	}
	m.holder, err = m.gpu.ModuleFunction(m.module, testkernels.Hold)
	return err
}

// Close gives the GPU back.
func (m *Machine) Close() error {
	if m.gpu == nil {
		return nil
	}
	return errors.Join(m.release(), m.gpu.Close())
}

// release undoes prepare.
func (m *Machine) release() error {
	var errs []error
	if m.pinned.Bytes != nil {
		errs = append(errs, m.gpu.HostFree(m.pinned))
	}
	if m.module != 0 {
		errs = append(errs, m.gpu.ModuleUnload(m.module))
	}
	m.pinned, m.module = driver.HostMemory{}, 0
	return errors.Join(errs...)
}

// Describe names the device and its driver.
func (m *Machine) Describe() (device, version string, err error) {
	if !m.onGPU {
		return "simulated device", "none", nil
	}
	p := m.properties
	if m.gpu != nil {
		p, err = m.gpu.Properties()
	}
	return p.Name, fmt.Sprintf("CUDA %d.%d", p.DriverVersion/1000, p.DriverVersion%1000/10), err
}

// device returns the device for one program, and its simulation of some bytes,
// nil on a GPU.
func (m *Machine) device(bytes uint64) (driver.Driver, *sim.Device, error) {
	if m.gpu != nil {
		m.taken = 0
		return m.gpu, nil, nil
	}
	d, err := sim.Open(sim.Config{Bytes: bytes})
	if err != nil {
		return nil, nil, err
	}
	if err := testkernels.Register(d); err != nil {
		return nil, nil, errors.Join(err, d.Close())
	}
	return d, d, nil
}

// hold keeps what is enqueued on s from now on from running until release is
// called, and at most ten seconds on a GPU.
func (m *Machine) hold(d *sim.Device, s driver.Stream) (release func(), err error) {
	if d != nil {
		return d.Hold(s)
	}
	at := m.taken * flagBytes
	if at+flagBytes > len(m.pinned.Bytes) {
		return nil, errors.New("a program holds more streams than there are flags for")
	}
	m.taken++
	flag := (*atomic.Uint64)(unsafe.Pointer(&m.pinned.Bytes[at]))
	flag.Store(0)
	err = m.gpu.Launch(&driver.Launch{Function: m.holder, Stream: s, Args: []driver.Arg{driver.Ptr(m.pinned.DevicePtr + uint64(at))}})
	return func() { flag.Store(1) }, err
}
