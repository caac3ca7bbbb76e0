package cuda

import (
	"cmp"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

// What is said of nil, by what it stands in place of.
const (
	adviceDriver  = "open a device, and look at the error of opening it"
	adviceStreams = "make a pool with NewStreamPool"
	adviceManager = "make one with NewMemoryManager, or take that of the runtime"
	adviceSlice   = "allocate one with Alloc, and look at its error"
	adviceLease   = "acquire one with StreamPool.Acquire, and look at its error"
	adviceHandle  = "look at the error of what made it"
)

func needDriver(op string, drv driver.Driver) error {
	if drv == nil {
		return refuse.Nil(op, "driver", adviceDriver)
	}
	return nil
}

// needDevice is for what stands on a device and its streams.
func needDevice(op string, drv driver.Driver, streams *StreamPool) error {
	if drv != nil && streams == nil {
		return refuse.Nil(op, "streams", adviceStreams)
	}
	return needDriver(op, drv)
}

func needManager(op string, m *MemoryManager) error {
	if m == nil {
		return refuse.Nil(op, "manager", adviceManager)
	}
	return needDriver(op, m.drv)
}

func needSlice[T Element](op, field string, s *Slice[T]) error {
	return need(op, field, s, adviceSlice)
}

func needSlices[T Element](op string, dst, src *Slice[T]) error {
	return cmp.Or(needSlice(op, "dst", dst), needSlice(op, "src", src))
}

func needLease(op string, l *Lease) error { return need(op, "lease", l, adviceLease) }

func needPool(op string, p *StreamPool) error { return need(op, "pool", p, adviceStreams) }

func need[T any](op, field string, p *T, advice string) error {
	if p == nil {
		return refuse.Nil(op, field, advice)
	}
	return nil
}

// missingHandle is the error of a method of nil.
func missingHandle(op, what string) error { return refuse.Nil(op, what, adviceHandle) }
