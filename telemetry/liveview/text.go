package liveview

import (
	"fmt"
	"path"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/fencepost-gpu/fencepost/core"
)

// How much of texts that come from the program is shown.
const (
	maxTagText  = 96
	maxText     = 1 << 10
	maxLongText = 8 << 10
	maxFrames   = 24
)

// clip cuts a text to at most n bytes, and says so.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = "…"
	n -= len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}

// ownFrames begin the functions of the layers, which a caller's stack has at
// its inner end.
var ownFrames = []string{
	"github.com/fencepost-gpu/fencepost/core.", "github.com/fencepost-gpu/fencepost/cuda.",
	"github.com/fencepost-gpu/fencepost/decorators/", "github.com/fencepost-gpu/fencepost/telemetry.",
	"github.com/fencepost-gpu/fencepost.(*Runtime)",
}

// frames renders a stack, innermost first, without the layers' own frames.
func frames(s core.Stack) (lines []string) {
	if len(s) == 0 {
		return nil
	}
	iterator := runtime.CallersFrames(s)
	for len(lines) < maxFrames {
		f, more := iterator.Next()
		if f.Function != "" && (len(lines) > 0 || !isOwn(f.Function)) {
			lines = append(lines, clip(fmt.Sprintf("%s %s:%d", f.Function, f.File, f.Line), maxText))
		}
		if !more {
			break
		}
	}
	return lines
}

func isOwn(function string) bool {
	for _, prefix := range ownFrames {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}

// caller is the innermost frame that is not a layer's, short.
func caller(s core.Stack) string {
	if len(s) == 0 {
		return ""
	}
	iterator := runtime.CallersFrames(s)
	for {
		f, more := iterator.Next()
		if f.Function != "" && !isOwn(f.Function) {
			return clip(fmt.Sprintf("%s %s:%d", path.Base(f.Function), path.Base(f.File), f.Line), maxText)
		}
		if !more {
			return ""
		}
	}
}
