package workload

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Kernels are the kernels for a host side other than this package's, such as
// the example service's; workload.cu says what each of them does. They are
// safe for concurrent use until Unload.
type Kernels struct {
	Histogram, Scan, Scatter, Clear, Build, Probe *cuda.Kernel

	module *cuda.Module
}

// LoadKernels loads the device code on drv. On a simulated device it must
// have been registered before, which fencepost.Open does. It may block.
func LoadKernels(drv driver.Driver) (*Kernels, error) {
	module, err := cuda.LoadModule(drv, Image())
	if err != nil {
		return nil, fmt.Errorf("loading the workload's kernels: %w", err)
	}
	var k kernels
	if err := k.load(module); err != nil {
		return nil, errors.Join(err, module.Unload())
	}
	return &Kernels{Histogram: k.histogram, Scan: k.scan, Scatter: k.scatter,
		Clear: k.clear, Build: k.build, Probe: k.probe, module: module}, nil
}

// Unload gives the code up; none of the kernels may be running or be launched
// any more. Errors are those of [cuda.Module.Unload].
func (k *Kernels) Unload() error { return k.module.Unload() }

// The facts that a host side must know of the sort.
const (
	// DigitBits is how many bits of a key one pass sorts by.
	DigitBits = digitBits
	// SlotWords is the number of words of a slot of the join's hash table.
	SlotWords = slotWords
	// NoPartner is the value of a row that found none, and the key of an
	// empty slot: no right row may have it as its key.
	NoPartner = noPartner
)

// Counters is the number of words that Histogram writes for n rows, and Scan
// takes.
func Counters(n int) int { return digits * slicesOf(n) }

// Sliced is the grid of Histogram and Scatter over n rows.
func Sliced(n int) cuda.Grid { return sliced(n) }

// OneBlock is the grid of Scan.
func OneBlock() cuda.Grid { return oneBlock }

// Rows is the grid of Build and Probe over n rows, and of Clear over n words.
func Rows(n int) cuda.Grid { return rows(n) }
