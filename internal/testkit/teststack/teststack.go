// Package teststack builds stacks on simulated devices for tests, and checks
// at their end that the device's own books are empty and its oracle silent. On
// a device of the caller's it checks the driver's pool.
package teststack

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/workload"
)

// Stack is a runtime over one device.
type Stack struct {
	// Sim is the simulated device; nil if the device is the caller's.
	Sim     *sim.Device
	Driver  driver.Driver
	Streams *cuda.StreamPool
	// Backend is Async or Pool, one of which is nil.
	Backend Backend
	Async   *cuda.AsyncResource
	Pool    *cuda.PoolResource
	Runtime *core.Runtime
	Memory  *cuda.MemoryManager
}

// Backend is what a stack asks of either backend.
type Backend interface {
	core.Resource
	// Drift, PoolStats, TrimPool and Close are those of both backends.
	Drift() (readings.Drift, error)
	// PoolStats: see Drift.
	PoolStats() (driver.PoolStats, error)
	// TrimPool: see Drift.
	TrimPool(keep uint64) error
	// Close: see Drift.
	Close(context.Context) error
}

// Config says how a stack is built.
type Config struct {
	Sim sim.Config
	// Device, if not nil, is used in place of a simulated one and stays the
	// caller's.
	Device  driver.Driver
	Streams int
	Async   cuda.AsyncConfig
	// Pool, if not nil, makes the backend the runtime's own pool. Its reaper is as
	// Async says.
	Pool *cuda.PoolConfig
	// DeviceOrder as in [cuda.StreamPoolConfig].
	DeviceOrder bool
	// Wrap stands between the runtime and the device; nil is the device.
	Wrap func(driver.Driver) driver.Driver
	// Layers are put around the backend.
	Layers []core.Layer
	// Dirty leaves out the checks at the end.
	Dirty bool
}

// Open builds a stack and closes it at the end of the test.
func Open(t testing.TB, cfg Config) *Stack {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		t.Helper()
		if err := s.Close(); err != nil && !cfg.Dirty {
			t.Error(err)
		}
	})
	return s
}

// New builds a stack for a caller that closes it.
func New(cfg Config) (*Stack, error) {
	s := &Stack{Driver: cfg.Device}
	if s.Driver == nil {
		if err := s.simulate(cfg.Sim); err != nil {
			return nil, err
		}
	}
	if cfg.Wrap != nil {
		s.Driver = cfg.Wrap(s.Driver)
	}
	if err := s.build(cfg); err != nil {
		return nil, errors.Join(err, s.closeSim())
	}
	return s, nil
}

func (s *Stack) simulate(cfg sim.Config) error {
	device, err := sim.Open(cfg)
	if err != nil {
		return err
	}
	s.Sim, s.Driver = device, device
	return nil
}

func (s *Stack) closeSim() error {
	if s.Sim == nil {
		return nil
	}
	return s.Sim.Close()
}

func (s *Stack) build(cfg Config) (err error) {
	if s.Streams, err = cuda.NewStreamPool(s.Driver, cuda.StreamPoolConfig{Max: cfg.Streams, DeviceOrder: cfg.DeviceOrder}); err != nil {
		return err
	}
	if cfg.Pool != nil {
		pool := *cfg.Pool
		pool.ReapInterval = cfg.Async.ReapInterval
		s.Pool, err = cuda.NewPoolResource(s.Driver, s.Streams, pool)
		s.Backend = s.Pool
	} else {
		s.Async, err = cuda.NewAsyncResource(s.Driver, s.Streams, cfg.Async)
		s.Backend = s.Async
	}
	if err != nil {
		return err
	}
	top, err := core.Chain(s.Backend, cfg.Layers...)
	if err != nil {
		return err
	}
	if s.Runtime, err = core.NewRuntime(top, nil); err != nil {
		return err
	}
	s.Memory, err = cuda.NewMemoryManager(s.Driver, s.Streams, s.Runtime)
	return err
}

// Lease acquires a stream and gives it back at the end of the test.
func (s *Stack) Lease(t testing.TB, tag core.Tag) *cuda.Lease {
	t.Helper()
	l, err := s.Streams.Acquire(context.Background(), tag)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Release() }) // a test may have released it
	return l
}

// Env is the stack as a workload needs it.
func (s *Stack) Env() workload.Env {
	return workload.Env{Driver: s.Driver, Runtime: s.Runtime, Streams: s.Streams, Memory: s.Memory}
}
