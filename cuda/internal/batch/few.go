package batch

import (
	"sync"

	"github.com/fencepost-gpu/fencepost/core/deviceops"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// fewLaunch is the launch that fills a few regions.
type fewLaunch struct {
	launch driver.Launch
	args   [3 * driver.GuardFew]driver.Arg
}

var fewLaunches = sync.Pool{New: func() any { return new(fewLaunch) }}

// FillFew enqueues the filling of at most [driver.GuardFew] regions, which travel as the
// arguments of the launch: that takes neither memory nor an event. fill is
// [driver.GuardFillFewKernel].
func FillFew(drv driver.Driver, fill driver.Function, s driver.Stream, regions []deviceops.Region) error {
	f := fewLaunches.Get().(*fewLaunch)
	defer fewLaunches.Put(f)
	f.set(regions)
	f.launch.Function, f.launch.Stream = fill, s
	return drv.Launch(&f.launch)
}

// set makes the regions the launch's arguments. The grid follows the largest:
// a thread for each of its vectors, up to what fills any device.
func (f *fewLaunch) set(regions []deviceops.Region) {
	const block, vector, maxBlocks = 256, 16, 1024
	var largest uint64
	for i := range driver.GuardFew {
		var r deviceops.Region
		if i < len(regions) {
			r = regions[i]
		}
		f.args[3*i], f.args[3*i+1], f.args[3*i+2] = driver.Ptr(r.Ptr), driver.U64(r.Bytes), driver.U64(r.Pattern)
		largest = max(largest, r.Bytes)
	}
	blocks := min(largest/vector/block+1, maxBlocks)
	f.launch.Grid, f.launch.Block, f.launch.Args = driver.Dim{X: uint32(blocks)}, driver.Dim{X: block}, f.args[:]
}
