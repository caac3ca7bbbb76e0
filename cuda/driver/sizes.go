package driver

import (
	"fmt"
	"math"
)

// What every CUDA device takes at most.
const maxThreads = 1024 // in a block

var (
	maxBlock = Dim{X: maxThreads, Y: maxThreads, Z: 64}
	maxGrid  = Dim{X: math.MaxInt32, Y: math.MaxUint16, Z: math.MaxUint16}
)

// CheckSizes says why no CUDA device takes a launch of these sizes; empty if it may. It makes no
// device call.
func CheckSizes(grid, block Dim) string {
	switch {
	case !block.within(maxBlock):
		return fmt.Sprintf("blocks of %v threads: CUDA takes at most %v", block, maxBlock)
	case !grid.within(maxGrid):
		return fmt.Sprintf("a grid of %v blocks: CUDA takes at most %v", grid, maxGrid)
	case max(block.X, 1)*max(block.Y, 1)*max(block.Z, 1) > maxThreads:
		return fmt.Sprintf("blocks of %v threads: CUDA takes at most %d in all", block, maxThreads)
	}
	return ""
}

func (d Dim) within(most Dim) bool { return d.X <= most.X && d.Y <= most.Y && d.Z <= most.Z }

// String is "256 x 1 x 1".
func (d Dim) String() string {
	return fmt.Sprintf("%d x %d x %d", max(d.X, 1), max(d.Y, 1), max(d.Z, 1))
}
