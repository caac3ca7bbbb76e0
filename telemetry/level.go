package telemetry

import (
	"fmt"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
)

// Level says which operations become spans.
type Level uint8

// The levels. The zero value is the default.
const (
	// LevelOperations: launches, and every alloc, prepare, finish and
	// dealloc.
	LevelOperations Level = iota
	// LevelLaunches: launches only. The links of cross-stream waits then go
	// from launch to launch.
	LevelLaunches
	// LevelOff: no spans, only counters. What the layers below log still names
	// the caller's span.
	LevelOff
)

var levelNames = [...]string{"operations", "launches", "off"}

// String is the level's name, such as "launches".
func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("level(%d)", uint8(l))
}

// ParseLevel reads a level's name. Another text is a
// [core.InvalidRequestError].
func ParseLevel(name string) (Level, error) {
	if l := slices.Index(levelNames[:], name); l >= 0 {
		return Level(l), nil
	}
	return 0, &core.InvalidRequestError{Op: "telemetry.ParseLevel", Field: "level", Reason: fmt.Sprintf("%q: say off, launches or operations", name)}
}
