package cures

import (
	"context"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// effort says how much is done for a request. The zero value is that of a caller's request.
type effort struct {
	none, impatient, own bool
	// waited is how long the request has waited for the device already.
	waited time.Duration
	// answers: it is made by the program's function that is asked for memory.
	answers bool
}

// withEffort is a context with an effort. It passes the span on, which is looked for in the
// outermost context alone.
type withEffort struct {
	context.Context
	effort effort
}

type effortKey struct{}

func (c *withEffort) Value(key any) any {
	if key == (effortKey{}) {
		return c.effort
	}
	return c.Context.Value(key)
}

// SpanRef is the span of the context within.
func (c *withEffort) SpanRef() core.SpanRef { return core.SpanOf(c.Context) }

// Own is a context for a request of a layer's own that makes do with less if there is no more: its
// refusal is not told. If patient is not set it does not wait for the device.
func Own(ctx context.Context, patient bool) context.Context {
	return &withEffort{ctx, effort{own: true, impatient: !patient, answers: effortIn(ctx).answers}}
}

// Impatient is a context for a request that does not wait for the device.
func Impatient(ctx context.Context) context.Context {
	e := effortIn(ctx)
	e.impatient = true
	return &withEffort{ctx, e}
}

// Waited is a context for a request that has waited for the device for so long already.
func Waited(ctx context.Context, already time.Duration) context.Context {
	e := effortIn(ctx)
	e.waited += already
	return &withEffort{ctx, e}
}

// Without is a context for a request of a layer's own for which nothing is given up.
func Without(ctx context.Context) context.Context {
	return &withEffort{ctx, effort{own: true, none: true}}
}

func effortIn(ctx context.Context) effort {
	e, _ := ctx.Value(effortKey{}).(effort)
	return e
}
