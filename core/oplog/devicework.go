package oplog

import (
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// DeviceWork is when the device did a launch. Or, where Launch is zero, when it came past an allocation that made its
// stream wait, because the memory was used elsewhere before; then no time lies between Began and Ended, and each wait has
// the allocation's tag. Times are those of the host's clock.
type DeviceWork struct {
	// Launch is the launch's number and Name its name, Stream where it was enqueued, and On the number of the stream itself,
	// which has other leases before and after: readings.StreamInfo has it, too.
	Launch uint64
	Name   string
	Stream core.StreamID
	On     int
	// Span is the launch's, or the allocation's, if it is in a sampled trace. Weight is how many launches it stands for, of those that are not.
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
	// Job is the tag of the lease, if an account follows that, see cuda.Lease.Follow: a job's name. HeldByOthers is how long
	// the waits held it up that were not for leases which the same account follows, with Unattributed if any of those is among them.
	// Logs have neither.
	Job          core.Tag
	HeldByOthers time.Duration
}

// CopyTo makes to a copy of w, which shares nothing with it and uses the memory that to has.
func (w *DeviceWork) CopyTo(to *DeviceWork) {
	waits := slices.Grow(to.Waits[:0], len(w.Waits))[:len(w.Waits)]
	copy(waits, w.Waits)
	*to = *w
	to.Waits = waits
}

// Event is the record of a copy of w, which the device of that ordinal did.
func (w *DeviceWork) Event(ordinal int) Event {
	kept := *w
	kept.Waits = slices.Clone(w.Waits)
	return Event{Op: OpDevice, Layer: "device", Time: w.Began, Duration: w.Ended.Sub(w.Began), Ordinal: ordinal, Stream: w.Stream,
		Launch: w.Name, LaunchID: w.Launch, Waits: len(w.Waits), Span: w.Span, Device: &kept}
}

// DeviceWait is a wait of a launch for work on another stream.
type DeviceWait struct {
	// Stream, For, Launch and Span say what was waited for, as [core.Waited] does, Access what that did with the
	// block of Generation and Tag, because of which it was, and Own what the launch does with it. Where memory is
	// used again Generation, Access and Own are zero, and the launch is the newest that may have used it.
	Stream     core.StreamID
	For        core.WaitRef
	Launch     string
	Span       core.SpanRef
	Generation core.Generation
	Tag        core.Tag
	Access     core.Access
	Own        core.Access
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
