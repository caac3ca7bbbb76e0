package proof

import (
	"math/rand/v2"

	"github.com/fencepost-gpu/fencepost/dev/proof/program"
)

// RandomSchedule draws one interleaving of p's steps for so many host
// goroutines.
func RandomSchedule(rng *rand.Rand, p program.Program, goroutines int) Schedule {
	return DrawSchedule(p, goroutines, rng.IntN)
}

// DrawSchedule is RandomSchedule with numbers below n that draw makes.
func DrawSchedule(p program.Program, goroutines int, draw func(n int) int) Schedule {
	s := newScheduler(Explorer{Goroutines: goroutines}, p, nil)
	var m moment
	var buffer [maxOpen + 1]Step
	for m.next < len(p) || m.n > 0 {
		if s.refusal(&m) {
			s.steps = append(s.steps, Step{uint8(m.next), Refused})
		}
		enabled := s.enabled(&m, buffer[:0])
		step := enabled[draw(len(enabled))]
		s.steps = append(s.steps, step)
		m = s.after(m, step)
	}
	return s.steps
}
