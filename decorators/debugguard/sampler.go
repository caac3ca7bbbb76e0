package debugguard

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
)

// sampler chooses allocations so that each byte has the same chance: the gaps
// between chosen bytes are exponential with a given mean. It is safe for
// concurrent use.
type sampler struct {
	mean atomic.Uint64
	left atomic.Int64 // bytes until the next sample
}

func (s *sampler) setMean(bytes uint64) {
	s.mean.Store(bytes)
	s.left.Store(s.gap())
}

// gap draws one gap, between 1 byte and 2^52.
func (s *sampler) gap() int64 {
	g := rand.ExpFloat64() * float64(s.mean.Load())
	return int64(math.Min(g, 1<<52)) + 1
}

// take counts an allocation and reports whether it was chosen. Of several
// callers at once exactly one crosses zero, and it draws the next gap, which
// begins behind the chosen block: an exponential gap has no memory.
func (s *sampler) take(bytes uint64) bool {
	n := int64(min(bytes, 1<<52))
	left := s.left.Add(-n)
	if left > 0 || left+n <= 0 {
		return false
	}
	s.left.Add(s.gap() - left)
	return true
}
