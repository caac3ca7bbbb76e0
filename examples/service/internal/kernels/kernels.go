// Package kernels is the service's device code: a radix sort and a hash join, as
// PTX for a GPU and in Go for the simulated device. kernels.cu says what each
// kernel does, and is what the PTX was generated from.
package kernels

import (
	_ "embed"
	"errors"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda"
)

//go:embed kernels.ptx
var ptx []byte

// Kernels are the kernels that a runtime has loaded. They are safe for
// concurrent use.
type Kernels struct {
	Histogram, Scan, Scatter, Clear, Build, Probe *cuda.Kernel
}

// The names of the kernels, the same in both codes.
const (
	histogram  = "fencepost_radix_histogram"
	scan       = "fencepost_radix_scan"
	scatter    = "fencepost_radix_scatter"
	clearTable = "fencepost_join_clear"
	build      = "fencepost_join_build"
	probe      = "fencepost_join_probe"
)

// Load loads the kernels, until the runtime is closed. It may block in the
// driver.
func Load(rt *fencepost.Runtime) (*Kernels, error) {
	module, err := rt.Load("fencepost.examples.service", ptx, twins()...)
	if err != nil {
		return nil, err
	}
	var errs []error
	get := func(name string) *cuda.Kernel {
		k, err := module.Kernel(name)
		errs = append(errs, err)
		return k
	}
	k := &Kernels{Histogram: get(histogram), Scan: get(scan), Scatter: get(scatter), Clear: get(clearTable), Build: get(build), Probe: get(probe)}
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

// digits is the number of values of a digit, and of threads in a block.
const digits = 1 << DigitBits

// Kernels that keep the order of rows give each block a slice of them, as many
// rows as the others' but for the last.
const (
	sliceRows = 2048
	maxSlices = 64
)

// slicesOf is the number of slices of n rows.
func slicesOf(n int) int { return min((n+sliceRows-1)/sliceRows, maxSlices) }

// sliceOf is slice i of a column.
func sliceOf(col []uint32, i int) []uint32 {
	slices := slicesOf(len(col))
	each := (len(col) + slices - 1) / slices
	return col[min(i*each, len(col)):min((i+1)*each, len(col))]
}

// Counters is the number of words that Histogram writes for n rows, and Scan
// takes.
func Counters(n int) int { return digits * slicesOf(n) }

// Sliced is the grid of Histogram and Scatter over n rows.
func Sliced(n int) cuda.Grid { return cuda.Blocks1D(slicesOf(n)*digits, digits) }

// OneBlock is the grid of Scan.
func OneBlock() cuda.Grid { return cuda.Blocks1D(digits, digits) }

// Rows is the grid of Build and Probe over n rows, and of Clear over n words.
func Rows(n int) cuda.Grid { return cuda.Blocks1D(n, digits) }
