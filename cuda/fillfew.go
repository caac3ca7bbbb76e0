package cuda

import (
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// fewArguments is the launch that fills a few regions.
type fewArguments struct {
	launch driver.Launch
	args   [3 * driver.GuardFew]driver.Arg
}

var fewLaunches = sync.Pool{New: func() any { return new(fewArguments) }}

// set makes the regions the launch's arguments. The grid follows the largest:
// a thread for each of its vectors, up to what fills any device.
func (f *fewArguments) set(regions []core.Region) {
	const block, vector, maxBlocks = 256, 16, 1024
	var largest uint64
	for i := range driver.GuardFew {
		var r core.Region
		if i < len(regions) {
			r = regions[i]
		}
		f.args[3*i], f.args[3*i+1], f.args[3*i+2] = driver.Ptr(r.Ptr), driver.U64(r.Bytes), driver.U64(r.Pattern)
		largest = max(largest, r.Bytes)
	}
	grid := Blocks1D(int(min(largest/vector+1, maxBlocks*block)), block)
	f.launch.Grid, f.launch.Block, f.launch.Args = grid.Grid, grid.Block, f.args[:]
}

// fillArguments enqueues the filling of at most [driver.GuardFew] regions.
func (d *DeviceOps) fillArguments(stream core.StreamID, regions []core.Region) error {
	on, err := d.streams.table.enterUncaptured("DeviceOps", stream)
	if err != nil {
		return core.NotEnqueued(err)
	}
	defer on.Leave()
	d.unmarked.note(on)
	f := fewLaunches.Get().(*fewArguments)
	defer fewLaunches.Put(f)
	f.set(regions)
	f.launch.Function, f.launch.Stream = d.fillFew.function, on.Handle()
	return refusedUnlessSticky(d.drv.Launch(&f.launch))
}
