package alloctrace

import "github.com/fencepost-gpu/fencepost/core"

// LoggedError is an error as a log tells it.
type LoggedError struct {
	// Kind is the log's name of its kind, such as "out_of_budget".
	Kind string
	// Text is what the error said, perhaps cut off.
	Text string
}

// kinds are those that a reader looks at; the rest is text to it.
var kinds = map[string]error{
	"out_of_budget":   core.ErrOutOfBudget,
	"claim_exceeded":  core.ErrClaimExceeded,
	"out_of_memory":   core.ErrOutOfMemory,
	"driver":          core.ErrDriver,
	"stream_misuse":   core.ErrStreamMisuse,
	"use_after_free":  core.ErrUseAfterFree,
	"out_of_bounds":   core.ErrOutOfBounds,
	"invalid_request": core.ErrInvalidRequest,
	"closed":          core.ErrClosed,
}

// Error is the text.
func (e *LoggedError) Error() string { return e.Text }

// Is reports whether target is the sentinel of the error's kind.
func (e *LoggedError) Is(target error) bool { return kinds[e.Kind] != nil && kinds[e.Kind] == target }
