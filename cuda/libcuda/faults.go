package libcuda

import (
	"sync"

	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// faultWatch is what keeps completions honest while the driver may write core dumps.
//
// From a fault until the dump is written and the context lost, the driver says of work that it is done which is not. So it was on an
// H200, driver 580.159.04, CUDA 13.0, with a share of 658 of 908 faults that were stores which ended their kernel: the kernel
// is over when the store turns out to reach nothing, and the dump begins up to 270 ms after the event behind it is done. It was
// never so (of 243) where that is an event with timing. Of loads, and of stores that more work of their kernel follows, the driver
// says only when the dump is written that they are done (all of 552). See docs/guard.md.
type faultWatch struct {
	begun    func() bool
	launched func(*driver.Launch, string)
	kernels  sync.Map // driver.Function to its name
	// end is recorded in front of a wait for a stream.
	end driver.Event
}

// WatchFaults makes the device ask begun, whenever the driver says that work is done, whether a core dump has begun: if so the
// call fails with CUDA_ERROR_LAUNCH_FAILED, which is sticky. begun must be safe for concurrent use. All events have timing then, so
// that they are not done before a dump has begun; the record of one takes some 1.8 µs more. StreamQuery and Synchronize record none:
// behind the last kernel of a stream there is one if it was a launch of the runtime's. launched, if not nil, is
// called with each kernel that was enqueued, and its name, on the goroutine that did it, and must not keep the launch. WatchFaults is
// called before the device is used by others. The errors are the driver's.
func (d *Device) WatchFaults(begun func() bool, launched func(l *driver.Launch, kernel string)) error {
	end, err := d.TimingEventCreate()
	if err != nil {
		return err
	}
	d.faults = &faultWatch{begun: begun, launched: launched, end: end}
	return nil
}

func (d *Device) unwatchFaults() {
	if d.faults != nil {
		_ = d.EventDestroy(d.faults.end) // which the context's end does at the latest
		d.faults = nil
	}
}

// markEnd makes the wait for s that follows be one for an event with timing. An error, such as that of a capture, comes again from the wait.
func (d *Device) markEnd(s driver.Stream) {
	if d.faults == nil {
		return
	}
	if capturing, err := d.StreamCapturing(s); !capturing && err == nil {
		_ = d.EventRecord(d.faults.end, s)
	}
}

// unlessFaulting is the answer of a call that says that work is done.
func (d *Device) unlessFaulting(e entry, err error) error {
	if err != nil || d.faults == nil || !d.faults.begun() {
		return err
	}
	return driver.NewFault(e.String())
}

// name notes what a function is called.
func (w *faultWatch) name(f driver.Function, kernel string) {
	if w != nil && w.launched != nil {
		w.kernels.Store(f, names.Bound(kernel))
	}
}

// enqueued tells of a kernel that was enqueued.
func (w *faultWatch) enqueued(l *driver.Launch) {
	if w == nil || w.launched == nil {
		return
	}
	kernel, _ := w.kernels.Load(l.Function)
	name, _ := kernel.(string)
	w.launched(l, name)
}
