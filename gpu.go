package fencepost

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/loadtext"
)

// ErrNoCUDA is matched by the error of Open where a GPU was asked for and
// there is no CUDA driver to use. It is [libcuda.ErrNoDriver].
var ErrNoCUDA = libcuda.ErrNoDriver

// absentError is the error of a machine without a GPU that the configuration
// could use. Auto goes on with the simulated device then. Any other error is
// of a GPU that is there and does not work, and nothing takes its place: a
// service that computes on a simulated device because a driver is broken would
// be found out late.
type absentError struct {
	err    error
	reason string // in short
}

func (e *absentError) Error() string { return e.err.Error() }
func (e *absentError) Unwrap() error { return e.err }

// loadLibrary is replaced by tests.
var loadLibrary = libcuda.Load

// openGPU opens the GPU that cfg names.
func openGPU(cfg Config) (driver.Driver, error) {
	lib, err := loadLibrary()
	if err != nil {
		return nil, loadError(err)
	}
	n, err := lib.DeviceCount()
	if err != nil {
		return nil, broken(err)
	}
	if n == 0 {
		err := fmt.Errorf("%w: the driver sees no GPU; see CUDA_VISIBLE_DEVICES", ErrNoCUDA)
		return nil, &absentError{err, err.Error()}
	}
	if cfg.Ordinal >= n {
		return nil, invalid("Ordinal", fmt.Sprintf("%d: the CUDA driver shows %s; see \"fencepost doctor\" and CUDA_VISIBLE_DEVICES", cfg.Ordinal, countOf(n)))
	}
	if err := hasPools(lib, cfg); err != nil {
		return nil, err
	}
	device, err := lib.Open(cfg.Ordinal)
	if err != nil {
		return nil, broken(err)
	}
	return device, nil
}

func countOf(n int) string {
	if n == 1 {
		return "1 device, number 0"
	}
	return fmt.Sprintf("%d devices, 0 to %d", n, n-1)
}

// hasPools refuses a device without memory pools if the backend needs them,
// before a context is made there: some vGPU profiles and embedded boards.
func hasPools(lib *libcuda.Library, cfg Config) error {
	if cfg.Resource == Direct {
		return nil
	}
	d, err := lib.Describe(cfg.Ordinal)
	if err != nil {
		return broken(err)
	}
	if d.MemoryPools {
		return nil
	}
	reason := fmt.Sprintf("device %d (%s) has no stream-ordered memory pools", cfg.Ordinal, d.Name)
	return &absentError{fmt.Errorf("%s: set Resource to \"direct\" (FENCEPOST_RESOURCE=direct): %w", reason, errors.ErrUnsupported), reason}
}

// loadError tells a machine without a driver or without a GPU from one whose
// driver is there and cannot be used.
func loadError(err error) error {
	e, ok := errors.AsType[*libcuda.LoadError](err)
	if !ok {
		return broken(err)
	}
	if e.Stage == libcuda.StageOpen || e.Code == driver.NoDevice || e.Code == driver.StubLibrary {
		return &absentError{err, loadtext.Brief(err)}
	}
	return broken(err)
}

// broken is the error of a GPU that is there and does not work.
func broken(err error) error {
	return fmt.Errorf("the GPU cannot be used: %w; \"fencepost doctor\" says more, and FENCEPOST_DEVICE=sim goes on without it", err)
}
