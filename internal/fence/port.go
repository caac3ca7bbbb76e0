package fence

import "github.com/fencepost-gpu/fencepost/cuda/driver"

// Port is the calls of the driver that the engine makes: all that it does to a device
// goes through here. A [driver.Driver] is one. Each method means what the driver's
// does, may be called from any goroutine, and does not block, except those that
// say so.
type Port interface {
	// EventCreate makes an event. They are pooled by stream, and destroyed when the
	// stream is gone and nobody refers to them.
	EventCreate() (driver.Event, error)
	// EventDestroy ends one that nothing waits for.
	EventDestroy(driver.Event) error
	// EventRecord puts e behind everything that is enqueued on s. Recording an event
	// anew moves no wait that was queued before.
	EventRecord(e driver.Event, s driver.Stream) error
	// EventQuery asks whether the device has completed what e was recorded behind.
	EventQuery(driver.Event) (done bool, err error)
	// EventSynchronize blocks until then. The engine calls it only when the event is
	// known to be completed, so that it returns at once.
	EventSynchronize(driver.Event) error
	// StreamWait makes what is enqueued on s from now on wait for e.
	StreamWait(s driver.Stream, e driver.Event) error
	// StreamWaitPeer is StreamWait for an event of another device.
	StreamWaitPeer(s driver.Stream, peer driver.Driver, e driver.Event) error
	// StreamSynchronize blocks until the device has done what is enqueued on s. It is
	// the last means when an event cannot be recorded.
	StreamSynchronize(driver.Stream) error
	// StreamCapturing asks whether s captures a graph, and so must be left alone.
	StreamCapturing(driver.Stream) (bool, error)
}
