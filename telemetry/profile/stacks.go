package profile

import (
	"runtime"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
)

// maxFrames is the depth to which stacks are told apart; [core.CaptureStack]
// goes no deeper.
const maxFrames = 32

// frames is an interned call stack, innermost first, cut off behind the last
// program counter. Equal stacks are one pointer within a stackTable.
type frames [maxFrames]uintptr

func framesOf(s core.Stack) (f frames) {
	copy(f[:], s)
	return f
}

// stackTable interns stacks.
type stackTable map[frames]*frames

// intern returns nil for a stack that was not kept.
func (t stackTable) intern(s core.Stack) *frames {
	if len(s) == 0 {
		return nil
	}
	f := framesOf(s)
	if t[f] == nil {
		t[f] = &f
	}
	return t[f]
}

func (f *frames) counters() []uintptr {
	for n, pc := range f {
		if pc == 0 {
			return f[:n]
		}
	}
	return f[:]
}

// resolve returns the frames of the caller of the runtime, innermost first.
func (f *frames) resolve() []runtime.Frame {
	var all []runtime.Frame
	for it := runtime.CallersFrames(f.counters()); ; {
		frame, more := it.Next()
		if frame.Function != "" {
			all = append(all, frame)
		}
		if !more {
			return withoutLayers(all)
		}
	}
}

// module is the module whose library packages are left out.
const module = "github.com/fencepost-gpu/fencepost"

// withoutLayers leaves out the frames of the runtime's own packages at the
// inner end, unless there are no others.
func withoutLayers(all []runtime.Frame) []runtime.Frame {
	for i := range all {
		if !isLayer(all[i].Function) {
			return all[i:]
		}
	}
	return all
}

// isLayer reports whether a function belongs to a package that stands between
// a program and its device.
func isLayer(function string) bool {
	folder, ok := strings.CutPrefix(packageOf(function), module)
	if !ok {
		return false
	}
	switch folder {
	case "", "/core", "/cuda", "/telemetry", "/telemetry/profile":
		return true
	}
	return strings.HasPrefix(folder, "/decorators/") && !strings.HasSuffix(folder, "_test")
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
