package debugguard

import (
<<<<<<< HEAD
	"time"
=======
	"github.com/fencepost-gpu/fencepost/core"
>>>>>>> suspects
)

// VerdictsForRoom is how many verdicts of other blocks a free reads at most.
const VerdictsForRoom = verdictsForRoom

// Seals is how many blocks are sealed.
func (r *Resource) Seals() int { return int(r.seals.count.Load()) }

// Noted is the time that an operation would note now.

// Ticking reports whether the upkeep has set its timer.
func (r *Resource) Ticking() bool { return r.upkeep.armed.Load() }

// Forwarded is what isolated blocks take beyond what is live, and how many wait.
func (r *Resource) Forwarded() (isolation, waiting int64) {
	return r.forwarded.isolation.Load(), r.forwarded.waiting.Load()
}
