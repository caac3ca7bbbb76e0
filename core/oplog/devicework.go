package oplog

import (
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// DeviceWork is when the device did a launch. Times are those of the host's clock.
type DeviceWork struct {
	// Launch is the launch's number and Name its name, Stream where it was enqueued.
	Launch uint64
	Name   string
	Stream core.StreamID
	// Span is the launch's, if it is in a sampled trace. Weight is how many launches it stands for, of those that are not.
	Span   core.SpanRef
	Weight uint64
	// Prepared is when the host began to queue the launch's waits, Reached when the device had
	// done all that was before them on the stream, Began when the last wait was over and Ended when
	// the device had done what was enqueued. Where the host enqueued the work
	// after Began, the device began it later than that.
	Prepared, Reached, Began, Ended time.Time
	// Bound is how far the device's times may be from the host's clock. Among each
	// other most are right within some 6 µs on a GPU with much to do.
	Bound time.Duration
	// Waits are those that the launch was held up by, in their order, and Unattributed is how long those did together
	// that were behind the fourth: for these Held is -1.
	Waits        []DeviceWait
	Unattributed time.Duration
}

// DeviceWait is a wait of a launch for work on another stream.
type DeviceWait struct {
	// Stream, For, Launch and Span say what was waited for, as [core.Waited] does, and Access what that did with the
	// block of Generation and Tag, because of which it was.
	Stream     core.StreamID
	For        core.WaitRef
	Launch     string
	Span       core.SpanRef
	Generation core.Generation
	Tag        core.Tag
	Access     core.Access
	// Held is how long the launch stood there when all before was done.
	Held time.Duration
}

// DeviceWorkSink hears of what the device has done. Its methods must be safe for concurrent use and call no
// resource.
type DeviceWorkSink interface {
	// Done tells of a launch, which w describes until it returns.
	Done(w *DeviceWork)
	// Lost says that of so many launches that were to be timed it is not known when the device did them: too many were under way, the
	// device or the machine stood still, or the driver failed.
	Lost(launches int)
}
