package debugguard

import "time"

// GuardsAfter reports whether a throttle of so many blocks a second allows one
// more after one that took so long, and then a while.
func GuardsAfter(perSecond uint64, took, later time.Duration) bool {
	t := throttle{perSecond: perSecond}
	const start = 1000
	t.allows(start)
	t.took(took)
	return t.allows(start + instant(later/resolution))
}
