package refuse

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/audit"
)

// Memory completes the refusal of a pool, of which Held, May, Used, Behind, Fragmented and Largest
// are known. Figures of several streams are not of one instant: those that say more than there is
// room for are lowered. So the parts add up, and Cause is what they say.
func Memory(e *core.OutOfMemoryError) {
	e.Used = min(e.Used, e.Held)
	e.Cached = e.Held - e.Used
	e.Behind = min(e.Behind, e.Cached)
	e.Fragmented = min(e.Fragmented, e.Cached-e.Behind)
	free := e.May - min(e.May, e.Used)
	e.Largest = min(e.Largest, free)
	switch {
	case e.Requested > free:
		e.Cause = core.ShortageInUse
	case e.Requested > free-min(e.Behind, free):
		e.Cause = core.ShortageBehind
	default:
		e.Cause = core.ShortageFragmented
	}
}

// Named adds the holders to a refusal of a pool, of which inBlocks is the bytes of the blocks that
// are live or quarantined. If blocks have come since the pool was looked at, they are in use
// instead of free, so that the figures are of one moment. [audit.Check] looks at the result.
func Named(e *core.OutOfMemoryError, inBlocks uint64) {
	if inBlocks > e.Used {
		e.Used = inBlocks
		e.Held = max(e.Held, e.Used)
		e.May = max(e.May, e.Held)
		Memory(e)
	}
	audit.Check(func() error { return UntrueMemory(e) })
}

// UntrueMemory returns an error if the figures of a refusal of a pool do not explain it: they do
// not add up, Cause is not what they say, or the holders hold more than is in use. Else it is nil.
func UntrueMemory(e *core.OutOfMemoryError) error {
	again := *e
	if Memory(&again); again.Used != e.Used || again.Cached != e.Cached || again.Behind != e.Behind ||
		again.Fragmented != e.Fragmented || again.Largest != e.Largest || again.Cause != e.Cause {
		return fmt.Errorf("the parts do not add up, or the cause is %q: %w", again.Cause, e)
	}
	var blocks uint64
	for _, h := range e.Holders {
		if h.State == core.Live || h.State == core.Quarantined {
			blocks += h.Bytes
		}
	}
	if blocks > e.Used {
		return fmt.Errorf("the holders named have %d bytes in blocks, and %d are in use: %w", blocks, e.Used, e)
	}
	return nil
}
