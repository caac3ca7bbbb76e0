// Package must ends a test whose preparations fail.
package must

import (
	"errors"

	"github.com/fencepost-gpu/fencepost/internal/audit"
)

// Nearly every test imports this package, so that nearly all answers are checked.
func init() { audit.Listen(audit.Panic) }

// T is what it needs of a test, a benchmark, or a program of package rapid's.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Do ends the test if one of the errors is not nil.
func Do(t T, errs ...error) {
	if err := errors.Join(errs...); err != nil {
		t.Helper() // here, for it costs more than most of what tests repeat
		t.Fatal(err)
	}
}

// Get is the value of a call that may fail: must.Get(os.Open(name))(t).
func Get[V any](v V, err error) func(T) V {
	return func(t T) V {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
		return v
	}
}
