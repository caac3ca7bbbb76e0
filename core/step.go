package core

import "context"

// StepKind is a kind of [Step].
type StepKind uint8

// The kinds of steps.
const (
	// StepCopy: the driver is given a copy. On a GPU it may do it meanwhile, as it
	// does where the host's memory is not page-locked.
	StepCopy StepKind = iota + 1
	// StepWait: the host waits until a stream is done.
	StepWait
)

// The directions of copies.
const (
	ToDevice = "to_device"
	ToHost   = "to_host"
	OnDevice = "on_device"
	FromPeer = "from_peer"
)

// Step is something that takes a request's time beside the operations of a
// [Resource].
type Step struct {
	Kind StepKind
	// Stream is the copy's, or the one that is waited for.
	Stream StreamID
	// Direction and Bytes are of a copy.
	Direction string
	Bytes     uint64
}

// StepTracer shows steps in traces. It is how code that enqueues and waits has
// spans without knowing a tracing library.
type StepTracer interface {
	// BeginStep begins a step of ctx's trace. It returns nil if that is not
	// sampled, and then allocates nothing and reads no clock. It does not block
	// and is safe for concurrent use.
	BeginStep(ctx context.Context, s Step) StepSpan
}

// StepSpan is a step under way.
type StepSpan interface {
	// End ends the step, once, with its error if it failed.
	End(err error)
}
