package debugguard

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
)

// sampler chooses allocations so that each byte has the same chance: samples
// are a Poisson process over the bytes with a given mean gap, and a block is
// chosen if at least one falls into it. It keeps no state between calls, so
// concurrent callers neither meet on it nor hide each other's blocks.
type sampler struct{ mean atomic.Uint64 }

func (s *sampler) setMean(bytes uint64) { s.mean.Store(bytes) }

// take reports whether a block of so many bytes was chosen.
func (s *sampler) take(bytes uint64) bool {
	samples := float64(bytes) / float64(s.mean.Load())
	draw := rand.Float64()
	if draw >= samples { // more than the chance, and cheaper than it
		return false
	}
	return draw < -math.Expm1(-samples)
}
