// Package refuse makes the errors of calls that lack an argument, or that a resource cannot do.
package refuse

import (
	"context"

	"github.com/fencepost-gpu/fencepost/core"
)

// Nil is the error of a call that was given nil where it needs something: a
// [core.InvalidRequestError] that names the argument and says what to give.
func Nil(op, field, advice string) error {
	return &core.InvalidRequestError{Op: op, Field: field, Reason: "nil: " + advice}
}

// Unsupported is the error of an operation that a resource cannot do: a
// [core.StreamMisuseError] that also matches errors.ErrUnsupported.
func Unsupported(op, resource, advice string) error {
	return &core.StreamMisuseError{Op: op, Unsupported: true, Reason: op + " unsupported by " + resource + ": " + advice}
}

// NoRuntime returns the runtime of rt, or, if there is none, nor one in rt, an error that
// matches [core.ErrInvalidRequest]; op names the call that needs it.
func NoRuntime(op string, rt core.AnyRuntime) (*core.Runtime, error) {
	if rt != nil {
		if r := rt.Core(); r != nil {
			return r, nil
		}
	}
	return nil, Nil(op, "runtime", "open a runtime, and look at the error of opening it")
}

// NoContext is the error of a nil context, and nil of any other.
func NoContext(ctx context.Context, op string) error {
	if ctx != nil {
		return nil
	}
	return Nil(op, "ctx", "pass the request's context, or context.Background()")
}
