// Package device is what the example service does on the device: it sorts
// columns and joins them, each request's work as one job under a reservation.
//
// Every job is one call of [fencepost.Runtime.Do], under a reservation of all its
// memory, so that no job waits for memory while it sits on some. Copies and
// launches say what they read and write, and the runtime queues the waits between
// streams. Do gives everything back, whatever happened.
package device

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/examples/service/kernels"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

const (
	// ScopeName is the instrumentation scope of the engine's spans.
	ScopeName = "github.com/fencepost-gpu/fencepost/examples/service"
	// SpanReserve is the span of a job's wait for its memory and its stream.
	SpanReserve = "service.reserve"
	// AttrReserved is how many bytes a job asked for.
	AttrReserved attribute.Key = "service.reserve.bytes"
)

// Engine runs jobs on one runtime. It is safe for concurrent use.
type Engine struct {
	cfg     Config
	kernels *kernels.Kernels
	tracer  trace.Tracer
	sorts   atomic.Uint64 // of those that could have the planted bug
}

// Config is what an [Engine] is made of.
type Config struct {
	// Runtime is the open stack; it stays the caller's to close. Required.
	Runtime *fencepost.Runtime
	// TracerProvider makes the span of a job's reservation. Required; the
	// runtime has one of its own.
	TracerProvider trace.TracerProvider
	// Patience is how long a job waits for memory before it is refused. Zero
	// refuses at once.
	Patience time.Duration
	// PlantOverrun plants a bug, to practise with: one sort of so many writes one
	// value behind a column. Zero plants none.
	PlantOverrun uint64
}

// New loads the kernels, until the runtime is closed. It may block in the
// driver.
func New(cfg Config) (*Engine, error) {
	module, err := cfg.Runtime.Load("fencepost.examples.service", kernels.PTX, kernels.Twins()...)
	if err != nil {
		return nil, err
	}
	k, err := kernels.Find(module)
	if err != nil {
		return nil, err
	}
	return &Engine{cfg: cfg, kernels: k, tracer: cfg.TracerProvider.Tracer(ScopeName)}, nil
}

// jobStreams is the most streams that a job can make use of.
const jobStreams = 2

// MaxJobs is how many jobs can run at a time with a stream for each of their
// parts.
func (e *Engine) MaxJobs() int { return max(1, e.cfg.Runtime.Streams().Stats().Max/jobStreams) }

// MaxRows is the most rows of a column: the kernels count in 32 bits, and a
// column must have room in them for both its bytes and its counters.
const MaxRows = 1 << 28

func checkRows(op string, lengths ...int) error {
	for _, n := range lengths {
		if n > MaxRows {
			return &core.InvalidRequestError{Op: op, Field: "rows", Reason: fmt.Sprintf("%d rows: at most %d", n, MaxRows)}
		}
	}
	return nil
}

// wordBytes is the size of a column's value.
const wordBytes = 4

type column = cuda.Slice[uint32]

// do runs a job under a reservation of bytes. Its name is the tag of its memory and
// a label of metrics, so names are few. The runtime makes the spans of the work; this
// one of the wait for it is the service's.
func (e *Engine) do(ctx context.Context, name string, bytes uint64, work func(*fencepost.Job) error) error {
	_, waiting := e.tracer.Start(ctx, SpanReserve, trace.WithAttributes(AttrReserved.Int64(int64(bytes)), telemetry.AttrTag.String(name)))
	begun := false
	err := e.cfg.Runtime.Do(ctx, name, func(j *fencepost.Job) error {
		begun = true
		waiting.End()
		return work(j)
	}, fencepost.Reserve(bytes, e.cfg.Patience))
	if err != nil && !begun {
		waiting.SetAttributes(telemetry.AttrErrorType.String(telemetry.ErrorType(err)))
		waiting.SetStatus(codes.Error, err.Error())
	}
	waiting.End() // a second time if the work has begun, which does nothing
	return err
}
