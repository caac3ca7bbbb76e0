// Package expect compares errors with what a test expects, and lets the test go on.
package expect

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/internal/audit"
)

// Nearly every test imports this package, so that nearly all answers are checked.
func init() { audit.Listen(audit.Panic) }

// T is what it needs of a test, a benchmark, or a program of package rapid's.
type T interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
}

// Success fails the test if one of the errors is not nil.
func Success(t T, errs ...error) {
	if err := errors.Join(errs...); err != nil {
		t.Helper()
		t.Error(err)
	}
}

// Error fails the test if err does not match the target; what says in the failure of which call
// it is.
func Error(t T, err, target error, what ...any) {
	if !errors.Is(err, target) {
		t.Helper()
		t.Errorf("%s: got %v, want %v", fmt.Sprint(what...), err, target)
	}
}

// ErrorOf is Error for a call with a result: expect.ErrorOf(os.Open(name))(t, fs.ErrNotExist).
func ErrorOf[V any](_ V, err error) func(t T, target error, what ...any) {
	return func(t T, target error, what ...any) {
		t.Helper()
		Error(t, err, target, what...)
	}
}
