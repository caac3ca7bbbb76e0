package debugguard

// VerdictsForRoom is how many verdicts of other blocks a free reads at most.
const VerdictsForRoom = verdictsForRoom

// Seals is how many blocks are sealed.
func (r *Resource) Seals() int { return int(r.seals.count.Load()) }

// Ticking reports whether the upkeep has set its timer.
func (r *Resource) Ticking() bool { return r.upkeep.armed.Load() }

// Forwarded is what isolated blocks take beyond what is live, and how many wait.
func (r *Resource) Forwarded() (isolation, waiting int64) {
	return r.forwarded.isolation.Load(), r.path.Room().Waiting()
}
