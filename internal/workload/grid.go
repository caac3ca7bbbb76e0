package workload

import (
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// Kernels that keep the order of rows give each block a slice of them, as
// many rows as the others' but for the last. Every block has a thread for each
// value of a digit.
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

// sliced is the grid with a block for each slice of n rows.
func sliced(n int) cuda.Grid { return cuda.Blocks1D(slicesOf(n)*digits, digits) }

// rows is the grid with a thread for each of n rows.
func rows(n int) cuda.Grid { return cuda.Blocks1D(n, digits) }

var oneBlock = cuda.Grid{Grid: driver.Dim{X: 1}, Block: driver.Dim{X: digits}}
