package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost-gpu/fencepost/core"
)

// operation is the context that the layers below get with an operation in a sampled
// trace. They find its span without a search: [core.SpanOf] for their reports, and
// by the type a [Probe], which makes spans of traced operations only.
type operation struct {
	context.Context
	span core.SpanRef
	// traced is set if the operation has a span of its own. One that has none says
	// so, because it may be called within one that has: by a launch function.
	traced bool
}

var _ core.SpanCarrier = (*operation)(nil)

// SpanRef is the operation's span, or that of its caller.
func (o *operation) SpanRef() core.SpanRef { return o.span }

// operationKey is the key by which a context that wraps an operation has it.
type operationKey struct{}

// Value is the operation itself, or what it wraps has under key.
func (o *operation) Value(key any) any {
	if key == (operationKey{}) {
		return o
	}
	return o.Context.Value(key)
}

// inTracedOperation reports whether ctx is that of a traced operation. Most layers
// pass it on as it is, and then it allocates nothing.
func inTracedOperation(ctx context.Context) bool {
	if o, ok := ctx.(*operation); ok {
		return o.traced
	}
	return wrapsTracedOperation(ctx)
}

// wrapsTracedOperation searches a context that a layer has wrapped, in a deadline or
// with a value or a span of its own. A span in between that is not sampled ends the
// trace.
func wrapsTracedOperation(ctx context.Context) bool {
	o, ok := ctx.Value(operationKey{}).(*operation)
	return ok && o.traced && trace.SpanContextFromContext(ctx).IsSampled()
}

// under is ctx inside span, for the layers below. A span that is recorded but
// not sampled is nothing that a report should name.
func under(ctx context.Context, span trace.Span) context.Context {
	return enter(trace.ContextWithSpan(ctx, span), span)
}

// enter is under for a context that carries span already.
func enter(ctx context.Context, span trace.Span) context.Context {
	if ref := spanRef(span); !ref.IsZero() {
		return &operation{Context: ctx, span: ref, traced: true}
	}
	return ctx
}

// admit looks at the caller's span, once. It reports whether an operation that
// is traced up to the level last gets a span. If it gets none although the
// caller's is sampled, the layers below are told the caller's.
func (t *tracing) admit(ctx context.Context, last Level) (context.Context, bool) {
	if t == nil {
		return ctx, false
	}
	traced := t.level <= last
	parent := trace.SpanContextFromContext(ctx)
	switch {
	case !parent.IsValid():
		return ctx, traced && t.roots
	case traced:
		return ctx, parent.IsSampled()
	}
	return carry(ctx, parent), false
}

// admitLaunch is admit of a launch. One that gets no span of its own brings the
// caller's, so that what is found later can be told there.
func (t *tracing) admitLaunch(ctx context.Context, req *core.UseRequest) (context.Context, bool) {
	if t == nil {
		return ctx, false
	}
	traced := t.level <= LevelLaunches
	parent := trace.SpanContextFromContext(ctx)
	switch {
	case !parent.IsValid():
		return ctx, traced && t.roots
	case !traced:
		return carry(ctx, parent), false
	case parent.IsSampled():
		return ctx, true
	}
	req.Span = inForce(parent)
	return ctx, false
}

// correlate tells the layers below the caller's span, for an operation that
// never gets one.
func (t *tracing) correlate(ctx context.Context) context.Context {
	if t == nil {
		return ctx
	}
	return carry(ctx, trace.SpanContextFromContext(ctx))
}

func carry(ctx context.Context, parent trace.SpanContext) context.Context {
	if ref := refTo(parent); !ref.IsZero() {
		return &operation{Context: ctx, span: ref}
	}
	return ctx
}
