// Package teststack builds stacks on simulated devices for tests, and checks
// at their end that the device's own books are empty and its oracle silent.
package teststack

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/workload"
)

// Stack is a runtime over one simulated device.
type Stack struct {
	Sim     *sim.Device
	Driver  driver.Driver
	Streams *cuda.StreamPool
	Async   *cuda.AsyncResource
	Runtime *core.Runtime
	Memory  *cuda.MemoryManager
}

// Config says how a stack is built.
type Config struct {
	Sim     sim.Config
	Streams int
	Async   cuda.AsyncConfig
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
	device, err := sim.Open(cfg.Sim)
	if err != nil {
		return nil, err
	}
	s := &Stack{Sim: device, Driver: device}
	if cfg.Wrap != nil {
		s.Driver = cfg.Wrap(device)
	}
	if err := errors.Join(workload.Register(device), s.build(cfg)); err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return s, nil
}

func (s *Stack) build(cfg Config) (err error) {
	if s.Streams, err = cuda.NewStreamPool(s.Driver, cuda.StreamPoolConfig{Max: cfg.Streams}); err != nil {
		return err
	}
	if s.Async, err = cuda.NewAsyncResource(s.Driver, s.Streams, cfg.Async); err != nil {
		return err
	}
	top, err := core.Chain(s.Async, cfg.Layers...)
	if err != nil {
		return err
	}
	if s.Runtime, err = core.NewRuntime(core.Parts{Resource: top}); err != nil {
		return err
	}
	s.Memory, err = cuda.NewMemoryManager(s.Driver, s.Streams, s.Runtime)
	return err
}

// Close ends the stack and returns everything that is wrong: errors, what was
// not given back, and what the oracle found.
func (s *Stack) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var errs []error
	check := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("closing %s: %w", what, err))
		}
	}
	left, err := s.Runtime.Close(ctx)
	check("the runtime", err)
	check("the backend", s.Async.Close(ctx))
	check("the streams", s.Streams.Close(ctx))
	books := s.Sim.Books()
	check("the device", s.Sim.Close())
	if len(left.Leaks) > 0 || left.OpenIntents > 0 {
		errs = append(errs, fmt.Errorf("left over: %d blocks, %d open intents", len(left.Leaks), left.OpenIntents))
	}
	if want := (sim.Books{Modules: books.Modules, Reserved: books.Reserved}); books != want {
		errs = append(errs, fmt.Errorf("the device still holds %+v", books))
	}
	for _, f := range s.Sim.Findings() {
		errs = append(errs, fmt.Errorf("the oracle: %v", f))
	}
	return errors.Join(errs...)
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
	return workload.Env{Driver: s.Driver, Runtime: s.Runtime, Streams: s.Streams, Memory: s.Memory, Image: workload.Image()}
}
