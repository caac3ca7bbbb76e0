package profile

import (
	"slices"

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
	if n := slices.Index(f[:], 0); n >= 0 {
		return f[:n]
	}
	return f[:]
}
