package cuda

import (
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// memoryTries is how often the device is read until what the backend owns is
// the same before and after.
const memoryTries = 8

// readDevice reads the device's memory between two equal readings of what a backend owns
// of it.
func readDevice(drv driver.Driver, owns func() (uint64, error)) (free, total, owned uint64, err error) {
	before, err := owns()
	for try := 1; err == nil; try++ {
		if free, total, err = drv.MemInfo(); err != nil {
			break
		}
		if owned, err = owns(); err == nil && (owned == before || try == memoryTries) {
			return free, total, owned, nil
		}
		before = owned
	}
	return 0, 0, 0, err
}

// DeviceMemory reads the device's memory in bytes: what is free of the total, and what the
// resource owns of it, in its pool and mapped for isolated blocks. It may block in the
// driver; errors are [core.DriverError], and one that matches [core.ErrClosed] after Close.
func (r *tracker) DeviceMemory() (free, total, owned uint64, err error) {
	return readDevice(r.streams.drv, func() (uint64, error) {
		now, err := r.readMemory()
		return now.Reserved + r.mapper.Mapped(), err
	})
}

// DeviceMemory is AsyncResource's; direct blocks are what the resource owns.
func (r *DirectResource) DeviceMemory() (free, total, owned uint64, err error) {
	return readDevice(r.drv, func() (uint64, error) { return r.Stats().Live.Bytes, nil })
}

// Drift is not known: there is no pool to compare with.
func (r *DirectResource) Drift() (readings.Drift, error) { return readings.Drift{}, nil }

// TurnPeaks tells the windows of [AsyncResource.WindowPeaks] that it is now. It is to be
// called once at the beginning of each second; within the second of the last turn it does
// nothing. It neither calls the device nor waits for it.
func (r *tracker) TurnPeaks(now time.Time) { r.windows.Turn(now) }

// WindowPeaks are the peaks of the resource's memory over fixed windows of 15 and of 60
// seconds, for metrics of programs that hold memory in bursts: of each length that of the
// last window that is over, or of the one under way where that is higher already. Only
// [AsyncResource.TurnPeaks] moves the windows. It neither calls the device nor waits for
// it, and the slice is the caller's.
func (r *tracker) WindowPeaks() []readings.WindowPeak { return r.windows.Peaks() }

// Measure begins a stretch of time: soFar is what was live in it until now, of the whole
// resource and of each tag, and end ends it and returns the same, again if it has ended. What a guard
// withholds is not live. Stretches do not know of each other. While none is open nothing is kept; to begin one when none is, it
// locks each stream's books for as long as it takes to walk over the blocks that are live there, and
// while one is open all allocations and frees take a common lock. It makes no device call.
func (r *tracker) Measure() (soFar, end func() core.Peak) {
	m := r.streams.table.group.Measure()
	return m.Peak, m.End
}

// Measure is AsyncResource's.
func (r *DirectResource) Measure() (soFar, end func() core.Peak) {
	m := r.group.Measure()
	return m.Peak, m.End
}

// TurnPeaks is AsyncResource's.
func (r *DirectResource) TurnPeaks(now time.Time) { r.windows.Turn(now) }

// WindowPeaks is AsyncResource's.
func (r *DirectResource) WindowPeaks() []readings.WindowPeak { return r.windows.Peaks() }
