package alloctrace

import (
	"fmt"
	"strconv"
)

// ParseError says what is wrong with a trace file, and where.
type ParseError struct {
	// File is the name that the trace was read under.
	File string
	// Line is counted from 1; zero means the file as a whole.
	Line int
	// Field is the column or key at fault, as the format spells it, or
	// "file", "gzip", "header" or "row".
	Field string
	// Value is the offending text, shortened; empty if there is none.
	Value string
	// Reason says what was expected.
	Reason string
	// Err is the underlying error, if there is one.
	Err error
}

// Error is "file:line: field: reason", followed by the value; "file: reason" of a file that cannot
// be read at all.
func (e *ParseError) Error() string {
	if e.Line == 0 && e.Field == "file" {
		return e.File + ": " + e.Reason
	}
	s := fmt.Sprintf("%s:%d: %s: %s", e.File, e.Line, e.Field, e.Reason)
	if e.Value != "" {
		s += ", got " + strconv.Quote(e.Value)
	}
	return s
}

// Unwrap returns the underlying error, so that errors.Is finds fs.ErrNotExist
// and io.ErrUnexpectedEOF.
func (e *ParseError) Unwrap() error { return e.Err }

// maxShown bounds how much of a bad value an error repeats.
const maxShown = 80

func bad(field, value, reason string) *ParseError {
	if len(value) > maxShown {
		value = value[:maxShown] + "..."
	}
	return &ParseError{Field: field, Value: value, Reason: reason}
}

// at completes an error of a parser that knows neither file nor line.
func (e *ParseError) at(file string, line int) *ParseError {
	e.File, e.Line = file, line
	return e
}
