package libcuda

import (
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// errorText is what the driver calls a code.
type errorText struct{ name, text string }

// fail is the error of a call that returned code; nil for success.
func (l *Library) fail(e entry, code int) error {
	switch code {
	case codeSuccess:
		return nil
	case codeMissing:
		return unsupported(e, fmt.Sprintf("the driver library %s (CUDA %s) has no function %s: update the driver", l.path, versionText(l.version), e.symbol()))
	}
	return l.driverError(e, code)
}

// driverError is fail for a code of the driver's. The driver's own name and
// text are preferred: they know codes that are newer than this package.
func (l *Library) driverError(e entry, code int) *core.DriverError {
	err := driver.NewError(e.String(), code)
	if t := l.errorText(code); t.name != "" {
		err.Name, err.Text = t.name, t.text
	}
	return err
}

func (l *Library) errorText(code int) errorText {
	known, ok := l.errors.Load(code)
	if !ok {
		known, _ = l.errors.LoadOrStore(code, errorText{l.describe(cuGetErrorName, code), l.describe(cuGetErrorString, code)})
	}
	return known.(errorText)
}

// describe asks the driver for a string about code; empty if it knows none.
func (l *Library) describe(e entry, code int) string {
	f := newFrame(uintptr(code))
	defer f.release()
	f.c.Args[1] = f.result(0)
	if l.call(e, f) != codeSuccess {
		return ""
	}
	return cString(f.out[0])
}

// unsupported is the error of a call that this driver cannot do at all: a
// *core.DriverError that matches errors.ErrUnsupported too.
func unsupported(e entry, reason string) error {
	err := driver.NewError(e.String(), driver.NotSupported)
	err.Detail = reason
	return fmt.Errorf("%w: %w", err, errors.ErrUnsupported)
}
