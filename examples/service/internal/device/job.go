package device

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// SpanReserve is the span of a job's wait for its memory and its stream.
const SpanReserve = "service.reserve"

// AttrReserved is how many bytes a job asked for.
const AttrReserved attribute.Key = "service.reserve.bytes"

// wordBytes is the size of a column's value.
const wordBytes = 4

type column = cuda.Slice[uint32]

// do runs a job under a reservation of words. The runtime makes the spans of the
// work; this one of the wait for it is the service's.
func (e *Engine) do(ctx context.Context, name string, words uint64, work func(*fencepost.Job) error) error {
	bytes := words * wordBytes
	_, waiting := e.tracer.Start(ctx, SpanReserve, trace.WithAttributes(AttrReserved.Int64(int64(bytes)), telemetry.AttrTag.String(name)))
	begun := false
	err := e.rt.Do(ctx, name, func(j *fencepost.Job) error {
		begun = true
		waiting.End()
		return work(j)
	}, fencepost.Reserve(bytes, e.patience))
	if err != nil && !begun {
		waiting.SetAttributes(telemetry.AttrErrorType.String(telemetry.ErrorType(err)))
		waiting.SetStatus(codes.Error, err.Error())
	}
	waiting.End() // a second time if the work has begun, which does nothing
	return err
}

// allocate allocates columns of the given lengths.
func allocate(j *fencepost.Job, lengths ...int) ([]*column, error) {
	cols := make([]*column, 0, len(lengths))
	for _, n := range lengths {
		col, err := fencepost.Alloc[uint32](j, n)
		if err != nil {
			return nil, err
		}
		cols = append(cols, col)
	}
	return cols, nil
}
