package core

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// Stack is a call stack as program counters of runtime.Callers. It is kept as it
// was captured, and shown from the first frame of the program on: the frames of
// this module's library packages, and of Go's runtime, are left out at the inner
// end, as long as that leaves any.
type Stack []uintptr

// CaptureStack returns the caller's stack, without its first skip frames and
// at most 32 frames deep. It costs about a microsecond.
func CaptureStack(skip int) Stack {
	var pcs [32]uintptr
	n := runtime.Callers(skip+2, pcs[:])
	return append(Stack(nil), pcs[:n]...)
}

// Frames are the stack's frames, innermost first, from the first of the program
// on.
func (s Stack) Frames() []runtime.Frame {
	if len(s) == 0 {
		return nil
	}
	var all []runtime.Frame
	for frames := runtime.CallersFrames(s); ; {
		f, more := frames.Next()
		if f.Function != "" {
			all = append(all, f)
		}
		if !more {
			return fromProgram(all)
		}
	}
}

// Lines renders the stack, a frame a line, as "function file:line".
func (s Stack) Lines() []string {
	var lines []string
	for _, f := range s.Frames() {
		lines = append(lines, fmt.Sprintf("%s %s:%d", f.Function, f.File, f.Line))
	}
	return lines
}

// Caller is the first frame of the program, as Lines renders it; empty if there
// is none.
func (s Stack) Caller() string {
	if lines := s.Lines(); len(lines) > 0 {
		return lines[0]
	}
	return ""
}

// fromProgram leaves out what stands between a program and its device.
func fromProgram(all []runtime.Frame) []runtime.Frame {
	if i := slices.IndexFunc(all, isProgram); i > 0 {
		return all[i:]
	}
	return all
}

// module is the path of this module.
const module = "github.com/fencepost-gpu/fencepost"

// isProgram reports whether a frame is neither of Go's runtime nor of a library
// package of this module. Its commands, its examples, its internal packages and
// its tests use the library as others do.
func isProgram(f runtime.Frame) bool {
	path := packageOf(f.Function)
	folder, ours := strings.CutPrefix(path, module)
	switch {
	case path == "runtime" || strings.HasPrefix(path, "internal/runtime/"):
		return false
	case !ours || strings.HasSuffix(f.File, "_test.go"):
		return true
	case folder == "":
		return false
	}
	for _, library := range [...]string{"/core/", "/cuda/", "/decorators/", "/telemetry/", "/internal/path/"} {
		if strings.HasPrefix(folder+"/", library) {
			return false
		}
	}
	return true
}

// packageOf is the import path in a function's full name. Dots of the last
// element are escaped there.
func packageOf(function string) string {
	function, _, _ = strings.Cut(function, "[") // type arguments have paths too
	slash := strings.LastIndexByte(function, '/')
	if dot := strings.IndexByte(function[slash+1:], '.'); dot >= 0 {
		return function[:slash+1+dot]
	}
	return function
}
