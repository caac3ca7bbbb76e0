package core

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Leftover is what a runtime still held when it was closed.
type Leftover struct {
	// Leaks are the blocks that were never given back, as far as the stack lists
	// its blocks; see [Inspector].
	Leaks []BlockInfo
	// LeakedBytes is the requested bytes that were never given back.
	LeakedBytes uint64
	// OpenIntents is the number of uses prepared and never ended.
	OpenIntents uint64

	closed time.Time // of which the leaks have their ages
}

var _ slog.LogValuer = Leftover{}

// shownLeaks is how many leaks the text of a Leftover lists.
const shownLeaks = 20

// String is "nothing", or the sums and a line for each of the first leaks: bytes,
// tag, age, and the first frame of the stack that allocated it, as far as these
// are known.
func (l Leftover) String() string {
	if l.LeakedBytes == 0 && len(l.Leaks) == 0 && l.OpenIntents == 0 {
		return "nothing"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d bytes never given back, %d uses never ended", l.LeakedBytes, l.OpenIntents)
	for _, leak := range l.Leaks[:min(len(l.Leaks), shownLeaks)] {
		b.WriteString("\n  " + leak.leakText("", l.closed, "before the end"))
		if caller := leak.AllocStack.Caller(); caller != "" {
			b.WriteString(" at " + caller)
		}
	}
	if more := len(l.Leaks) - shownLeaks; more > 0 {
		fmt.Fprintf(&b, "\n  and %d more blocks", more)
	}
	return b.String()
}

// LogValue is the text, so that handlers of structured logs write no struct.
func (l Leftover) LogValue() slog.Value { return slog.StringValue(l.String()) }

// leakText says which block was not given back, and how long before at it was allocated.
func (b *BlockInfo) leakText(what string, at time.Time, before string) string {
	text := fmt.Sprintf("%d bytes tagged %q%s", b.Block.Requested, b.Block.Tag, what)
	if !b.Allocated.IsZero() && !at.IsZero() {
		text += fmt.Sprintf(", allocated %v %s", at.Sub(b.Allocated).Round(10*time.Millisecond), before)
	}
	return text
}
