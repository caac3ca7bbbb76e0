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
	for _, e := range captureEntries {
		if !d.library.has(e) { // a capture that could not end would be begun
			return d.library.fail(e, codeMissing)
		}
	}
	f := newFrame()
	f.c.Args[0], f.c.Args[1] = uintptr(s), captureRelaxed
	return d.end(f, d.invoke(cuStreamBeginCapture, s, f))
}

// StreamEndCapture ends the capture that began on s, and instantiates the
// graph, which may take milliseconds and device memory.
func (d *Device) StreamEndCapture(s driver.Stream) (driver.Graph, error) {
	f := newFrame()
	f.c.Args[0], f.c.Args[1] = uintptr(s), f.result(0)
	code := d.invoke(cuStreamEndCapture, s, f)
	template := f.out[0]
	if err := d.end(f, code); err != nil {
		return 0, err
	}
	g, err := d.instantiate(template)
	if err == nil {
		if err = d.destroy(cuGraphDestroy, template); err == nil {
			return g, nil
		}
		return 0, errors.Join(err, d.GraphDestroy(g))
	}
	return 0, errors.Join(err, d.destroy(cuGraphDestroy, template))
}

// instantiate makes what can be launched of a graph.
func (d *Device) instantiate(template uint64) (driver.Graph, error) {
	f := newFrame()
	f.c.Args[0], f.c.Args[1], f.c.Args[2] = f.result(0), uintptr(template), 0
	code := d.bound(cuGraphInstantiate, f)
	g := driver.Graph(f.out[0])
	return g, d.end(f, code)
}

// StreamCapturing reports whether s captures into a CUDA graph: what is
// enqueued then runs with the graph and not now. It does not block. On the
// legacy default stream it is CUDA_ERROR_STREAM_CAPTURE_IMPLICIT while a stream
// that synchronises with that one captures.
func (d *Device) StreamCapturing(s driver.Stream) (bool, error) {
	f := newFrame()
	f.c.Args[0], f.c.Args[1] = uintptr(s), f.result(0)
	code := d.invoke(cuStreamIsCapturing, s, f)
	status := uint32(f.out[0])
	return status != 0, d.end(f, code)
}

// GraphLaunch enqueues all of the work of g on s. It blocks only if the
// driver's queue is full.
func (d *Device) GraphLaunch(g driver.Graph, s driver.Stream) error {
	if g == 0 && d.library.has(cuGraphLaunch) { // the driver would look behind it
		return d.library.fail(cuGraphLaunch, driver.InvalidHandle)
	}
	f := newFrame()
	f.c.Args[0], f.c.Args[1] = uintptr(g), uintptr(s)
	return d.end(f, d.invoke(cuGraphLaunch, s, f))
}

// GraphDestroy gives the handle back. Launches that are queued still run.
func (d *Device) GraphDestroy(g driver.Graph) error {
	if g == 0 {
		return d.library.fail(cuGraphExecDestroy, driver.InvalidHandle)
	}
	return d.destroy(cuGraphExecDestroy, uint64(g))
}

// destroy makes a call whose only argument is a graph.
func (d *Device) destroy(e entry, graph uint64) error {
	f := newFrame()
	f.c.Args[0] = uintptr(graph)
	return d.end(f, d.bound(e, f))
}
