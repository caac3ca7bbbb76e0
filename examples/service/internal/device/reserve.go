package device

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// SpanReserve is the span of a job's wait for its memory.
const SpanReserve = "service.reserve"

// AttrReserved is how many bytes a job asked for.
const AttrReserved attribute.Key = "service.reserve.bytes"

// reserve sets the memory of a whole job aside. [fencepost.Runtime]'s Reserve
// never waits, and that is right for it: who may wait for how long is the
// service's business. So the wait is here, and the refusal that ends it is the
// runtime's own, which explains itself.
func (e *Engine) reserve(ctx context.Context, bytes uint64, tag tag) (core.Claim, error) {
	ctx, span := e.tracer.Start(ctx, SpanReserve, trace.WithAttributes(AttrReserved.Int64(int64(bytes)), telemetry.AttrTag.String(string(tag))))
	defer span.End()
	claim, err := e.reserveWithin(ctx, bytes, tag)
	if err != nil {
		span.SetAttributes(telemetry.AttrErrorType.String(telemetry.ErrorType(err)))
		span.SetStatus(codes.Error, err.Error())
	}
	return claim, err
}

// reserveWithin asks as soon as the bytes seem to fit, and at the latest when
// the patience is over. It looks before it asks, because each refusal counts.
func (e *Engine) reserveWithin(ctx context.Context, bytes uint64, tag tag) (core.Claim, error) {
	patience := time.After(e.patience)
	over := e.patience <= 0
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if over || e.mayFit(ctx, bytes) {
			claim, err := e.rt.Reserve(ctx, bytes, tag)
			if err == nil || over || !errors.Is(err, core.ErrOutOfBudget) {
				return claim, err
			}
		}
		select {
		case <-ctx.Done():
			return core.Claim{}, fmt.Errorf("waiting for %d bytes of device memory: %w", bytes, ctx.Err())
		case <-patience:
			over = true
		case <-time.After(pause):
		}
	}
}

// mayFit reports whether asking is not hopeless now. What the guard holds in
// quarantine it gives up before a request is refused. A request larger than
// the limit is hopeless for ever, and is answered at once.
func (e *Engine) mayFit(ctx context.Context, bytes uint64) bool {
	_ = e.rt.ReapPending(ctx) // a failure shows in what comes next
	st := e.rt.Stats()
	return bytes > st.Limit || st.Charged-min(st.Charged, st.Quarantined.Bytes)+bytes <= st.Limit
}
