package fencepost

import (
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/handback"
)

// Layers are layers of the program's own in the stack that [Open] builds, each list from
// the device outwards, as in [core.Chain]. A layer sees what the layers outside of it ask:
//
//	telemetry ( AroundGuard ( guard ( AroundBudget ( budget ( log ( backend ) ) ) ) ) )
//
// Open calls each function once. Its error fails Open; a nil function is left out. What it
// returns must reach the upstream by Unwrap, whose String names the stack. It is used by
// many goroutines at a time until Close has ended, and stays the program's to close after
// that. With one, allocations and frees are not served at once (docs/architecture.md). Test
// it with package coretest.
type Layers struct {
	// AroundBudget see what the device is asked for: red zones included, and a free when
	// the guard's quarantine ends. What they refuse is not charged, and the guard tries
	// again where it can make room.
	AroundBudget []core.Layer
	// AroundGuard see what callers ask for. What they refuse is known to the metrics and
	// spans, and to no log.
	AroundGuard []core.Layer
}

// check refuses a layer that hides what is beneath it: the runtime finds blocks there.
func (Layers) check(top, base core.Resource) error {
	if core.Base(top) == base {
		return nil
	}
	return invalid("Layers", "a layer hides the backend: return its upstream from Unwrap")
}

// appendOwn adds layers of the program's.
func appendOwn(all, own []core.Layer) []core.Layer {
	for _, layer := range own {
		all = append(all, handback.Around(layer))
	}
	return all
}
