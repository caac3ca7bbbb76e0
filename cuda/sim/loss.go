package sim

import (
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// loss is why the context was lost: the code that every later call gets, and in
// words what a GPU would not say, empty if that is all.
type loss struct {
	code int
	why  string
}

func (l *loss) detail() string {
	if l.why == "" {
		return "the context was lost before; open a new device"
	}
	return "the context was lost before: " + l.why + "; open a new device"
}

// fail takes the context with a sticky error; the first one stays.
func (d *Device) fail(code int, why string) { d.lost.CompareAndSwap(nil, &loss{code, why}) }

// kernelPanic takes the context for a kernel that panicked.
func (d *Device) kernelPanic(o *op, p any) {
	stack := make([]byte, 4<<10)
	stack = stack[:runtime.Stack(stack, false)]
	f := Finding{Kind: KernelPanic, First: Party{Op: o.name, Stream: o.stream, Guard: o.kernel.guard}}
	f.Text = fmt.Sprintf("%s: kernel %s on stream %#x panicked: %v\n%s", KernelPanic, o.name, uint64(o.stream), p, stack)
	d.file(f, nil, fmt.Sprint(p))
	d.fail(driver.LaunchFailed, fmt.Sprintf("kernel %q panicked%s: %v", o.name, panicked(), p))
}

// panicked is where the panic began that is being recovered, as " at file:line":
// in the kernel, even if it was an accessor that panicked.
func panicked() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	began := false
	for {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			began = true
		case began && !strings.HasPrefix(f.Function, "runtime.") && !isAccessor(f):
			return fmt.Sprintf(" at %s:%d", filepath.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}

func isAccessor(f runtime.Frame) bool {
	return strings.HasPrefix(f.Function, reflect.TypeFor[Exec]().PkgPath()+".") && !strings.HasSuffix(f.File, "_test.go")
}

// reached says of an operation that it went where nothing is mapped.
func (o *op) reached(r Range) string {
	return fmt.Sprintf("%s touched memory at %#x (%d bytes), where nothing is mapped", o.name, r.Ptr, r.Bytes)
}
