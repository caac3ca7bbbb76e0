package web

import (
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/device"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// Config is what a [Server] is made of.
type Config struct {
	// Runtime and Engine do the work; they stay the caller's to close.
	// Required.
	Runtime *fencepost.Runtime
	Engine  *device.Engine
	// TracerProvider makes the requests' spans. Required.
	TracerProvider trace.TracerProvider
	// SpanCounts reads what became of the spans, for the metrics; nil leaves
	// those metrics out.
	SpanCounts func() metrics.SpanCounts
	Limits     Limits
	// SwitchGuard lets requests from this machine switch the debug guard.
	SwitchGuard bool
}

// Limits bound what requests may cost.
type Limits struct {
	// MaxBody is the bytes of a request's body, MaxRows the rows of each of
	// its columns.
	MaxBody int64
	MaxRows int
	// Turns is how many requests are on the device at a time, and Waiting how
	// many others may be in the house. The rest get 429.
	Turns, Waiting int
	// Timeout is how long a request may take, from its headers to the last
	// byte that the device gives; clients can ask for less.
	Timeout time.Duration
	// RetryAfter is what is told to clients who may try again. HTTP counts
	// it in whole seconds.
	RetryAfter time.Duration
}

// DefaultLimits fit a small device; turns are those that the engine has
// streams for.
func DefaultLimits(e *device.Engine) Limits {
	return Limits{MaxBody: 64 << 20, MaxRows: 4 << 20, Turns: e.MaxJobs(), Waiting: 64, Timeout: 10 * time.Second, RetryAfter: time.Second}
}

func (l Limits) check(e *device.Engine) error {
	switch {
	case l.MaxBody < 1:
		return fmt.Errorf("a body of at most %d bytes: allow at least 1", l.MaxBody)
	case l.MaxRows < 1 || l.MaxRows > device.MaxRows:
		return fmt.Errorf("at most %d rows: say 1 to %d", l.MaxRows, device.MaxRows)
	case l.Turns < 1 || l.Turns > e.MaxJobs():
		return fmt.Errorf("%d requests on the device: say 1 to %d, for which there are streams", l.Turns, e.MaxJobs())
	case l.Waiting < 0:
		return fmt.Errorf("%d waiting requests: say 0 or more", l.Waiting)
	case l.Timeout <= 0:
		return fmt.Errorf("a timeout of %v: say more than 0", l.Timeout)
	case l.RetryAfter < time.Second:
		return fmt.Errorf("retry after %v: say 1s or more", l.RetryAfter)
	}
	return nil
}
