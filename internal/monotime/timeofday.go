package monotime

import (
	"slices"
	"sync/atomic"
	"time"
)

// step is a change of the time of day against the monotonic clock.
type step struct {
	// from is the instant at which it was seen, zero the zero Instant by both clocks as
	// they are since then.
	from Instant
	zero time.Time
}

const (
	// leastStep is the least that counts as a step; what is less adds up until it does.
	leastStep = time.Millisecond
	// maxSteps bounds how many are seen. The oldest instants then have the time of day
	// that came later.
	maxSteps = 64
)

// steps are seen, oldest first. The list is replaced and never changed, under
// calibrating.
var steps atomic.Pointer[[]step]

func init() { steps.Store(&[]step{{zero: processStart}}) }

// base is the zero Instant by the clocks as they were at i.
func (i Instant) base() time.Time {
	seen := *steps.Load()
	for n := len(seen) - 1; n > 0; n-- {
		if seen[n].from <= i {
			return seen[n].zero
		}
	}
	return seen[0].zero
}

// noteZero takes in what the zero Instant is by both clocks as they are at an instant.
func noteZero(at Instant, zero time.Time) {
	seen := *steps.Load()
	if zero.Round(0).Sub(seen[len(seen)-1].zero.Round(0)).Abs() < leastStep {
		return
	}
	seen = slices.Clone(seen[max(0, len(seen)+1-maxSteps):])
	seen = append(seen, step{at, zero})
	steps.Store(&seen)
}
