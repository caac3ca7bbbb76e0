package libcuda

import (
	"errors"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// captureEntries are what a driver must have for captures.
var captureEntries = []entry{
	cuStreamBeginCapture, cuStreamEndCapture, cuStreamIsCapturing,
	cuGraphInstantiate, cuGraphDestroy, cuGraphLaunch, cuGraphExecDestroy,
}

// StreamBeginCapture makes work of s be recorded from now on. It does not
// block. The capture is relaxed: it disturbs no other thread, and may go on and
// end on any, as goroutines do.
func (d *Device) StreamBeginCapture(s driver.Stream) error {
	if err := d.library.needs(captureEntries...); err != nil { // or a capture that could not end would be begun
		return err
	}
	return d.do(cuStreamBeginCapture, s, uintptr(s), captureRelaxed)
}

// StreamEndCapture ends the capture that began on s, and instantiates the
// graph, which may take milliseconds and device memory.
func (d *Device) StreamEndCapture(s driver.Stream) (driver.Graph, error) {
	template, err := d.ofStream(cuStreamEndCapture, s)
	if err != nil {
		return 0, err
	}
	g, err := d.get(cuGraphInstantiate, inContext, uintptr(template), 0)
	destroyed := d.do(cuGraphDestroy, inContext, uintptr(template))
	switch {
	case err != nil:
		return 0, errors.Join(err, destroyed)
	case destroyed != nil:
		return 0, errors.Join(destroyed, d.GraphDestroy(driver.Graph(g)))
	}
	return driver.Graph(g), nil
}

// StreamCapturing reports whether s captures into a CUDA graph: what is
// enqueued then runs with the graph and not now. It does not block. On the
// legacy default stream it is CUDA_ERROR_STREAM_CAPTURE_IMPLICIT while a stream
// that synchronises with that one captures.
func (d *Device) StreamCapturing(s driver.Stream) (bool, error) {
	status, err := d.ofStream(cuStreamIsCapturing, s)
	return uint32(status) != 0, err
}

// GraphLaunch enqueues all of the work of g on s. It blocks only if the
// driver's queue is full.
func (d *Device) GraphLaunch(g driver.Graph, s driver.Stream) error {
	if g == 0 && d.library.needs(cuGraphLaunch) == nil { // the driver would look behind it
		return d.library.fail(cuGraphLaunch, driver.InvalidHandle)
	}
	return d.do(cuGraphLaunch, s, uintptr(g), uintptr(s))
}

// GraphDestroy gives the handle back. Launches that are queued still run.
func (d *Device) GraphDestroy(g driver.Graph) error {
	if g == 0 {
		return d.library.fail(cuGraphExecDestroy, driver.InvalidHandle)
	}
	return d.do(cuGraphExecDestroy, inContext, uintptr(g))
}
