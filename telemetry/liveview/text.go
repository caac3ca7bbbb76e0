package liveview

import (
	"fmt"
	"path"
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

// frames renders a stack, innermost first, from the first frame of the program
// on.
func frames(s core.Stack) []string {
	lines := s.Lines()
	lines = lines[:min(len(lines), maxFrames)]
	for i := range lines {
		lines[i] = clip(lines[i], maxText)
	}
	return lines
}

// caller is the first frame of the program, short.
func caller(s core.Stack) string {
	all := s.Frames()
	if len(all) == 0 {
		return ""
	}
	f := all[0]
	return clip(fmt.Sprintf("%s %s:%d", path.Base(f.Function), path.Base(f.File), f.Line), maxText)
}
