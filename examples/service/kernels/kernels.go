// Package kernels is device code of a radix sort, a hash join and a filter: as PTX
// for a GPU, and in Go for the simulated device. kernels.cu says what each kernel
// does, and is what the PTX was generated from.
package kernels

import (
	_ "embed"
	"errors"

	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// PTX is the device code for a GPU.
//
//go:embed kernels.ptx
var PTX []byte

// Kernels are the kernels of a loaded module. They are safe for concurrent use.
type Kernels struct {
	Histogram, Scan, Scatter, Clear, Build, Probe, Filter *cuda.Kernel
}

// ClearName is the name of the kernel that empties a table: clear(table, n) writes
// n words.
const ClearName = "fencepost_join_clear"

// The names of the other kernels, the same in both codes.
const (
	histogram = "fencepost_radix_histogram"
	scan      = "fencepost_radix_scan"
	scatter   = "fencepost_radix_scatter"
	build     = "fencepost_join_build"
	probe     = "fencepost_join_probe"
	filter    = "fencepost_filter"
)

// Twins are the kernels for the simulated device.
func Twins() []sim.Kernel {
	return []sim.Kernel{
		{Name: histogram, Declare: declareHistogram, Run: runHistogram},
		{Name: scan, Declare: declareScan, Run: runScan},
		{Name: scatter, Declare: declareScatter, Run: runScatter},
		{Name: ClearName, Declare: declareClear, Run: runClear},
		{Name: build, Declare: declareBuild, Run: runBuild},
		{Name: probe, Declare: declareProbe, Run: runProbe},
		{Name: filter, Declare: declareFilter, Run: runFilter},
	}
}

// Find finds the kernels in a module that was loaded from [PTX] and [Twins].
func Find(m *cuda.Module) (*Kernels, error) {
	var errs []error
	get := func(name string) *cuda.Kernel {
		k, err := m.Kernel(name)
		errs = append(errs, err)
		return k
	}
	k := &Kernels{Histogram: get(histogram), Scan: get(scan), Scatter: get(scatter),
		Clear: get(ClearName), Build: get(build), Probe: get(probe), Filter: get(filter)}
	return k, errors.Join(errs...)
}

// The facts that a host side must know of the kernels.
const (
	// DigitBits is how many bits of a key one pass of the sort goes by.
	DigitBits = 8
	// SlotWords is the number of words of a slot of the join's hash table.
	SlotWords = 2
	// NoPartner is the value of a row that found none, and the key of an empty
	// slot: no right row may have it as its key.
	NoPartner = 0xffffffff
)

const (
	// digits is the number of values of a digit, and of threads in a block.
	digits    = 1 << DigitBits
	wordBytes = 4
)

// Kernels that keep the order of rows give each block a slice of them, as many
// rows as the others' but for the last.
const (
	sliceRows = 2048
	maxSlices = 64
)

// Slices is the number of slices of n rows.
func Slices(n int) int { return min((n+sliceRows-1)/sliceRows, maxSlices) }

// Slice is slice i of a column.
func Slice(col []uint32, i int) []uint32 {
	slices := Slices(len(col))
	each := (len(col) + slices - 1) / slices
	return col[min(i*each, len(col)):min((i+1)*each, len(col))]
}

// Counters is the number of words that Histogram writes for n rows, and Scan
// takes.
func Counters(n int) int { return digits * Slices(n) }

// Slots is the size of a join's table for n rows: a power of two, and at most half
// full.
func Slots(n int) int {
	slots := 1
	for slots < 2*n {
		slots *= 2
	}
	return slots
}

// Sliced is the grid of Histogram, Scatter and Filter over n rows.
func Sliced(n int) cuda.Grid { return cuda.Blocks1D(Slices(n)*digits, digits) }

// OneBlock is the grid of Scan.
func OneBlock() cuda.Grid { return cuda.Blocks1D(digits, digits) }

// Rows is the grid of Build and Probe over n rows, and of Clear over n words.
func Rows(n int) cuda.Grid { return cuda.Blocks1D(n, digits) }
