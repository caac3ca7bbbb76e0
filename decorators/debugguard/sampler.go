package debugguard

import (
	"maps"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// sampler chooses allocations so that each byte has the same chance: samples
// are a Poisson process over the bytes with a given mean gap, and a block is
// chosen if at least one falls into it. It keeps no state between calls, so
// concurrent callers neither meet on it nor hide each other's blocks.
type sampler struct{ mean atomic.Uint64 }

func (s *sampler) setMean(bytes uint64) { s.mean.Store(bytes) }

// choose reports whether a block of so many bytes was chosen.
func (s *sampler) choose(bytes uint64) bool { return chosen(bytes, s.mean.Load()) }

// chosen draws for a block of so many bytes. A mean of 1 chooses every block,
// of 0 none.
func chosen(bytes, mean uint64) bool {
	if mean <= 1 {
		return mean == 1
	}
	samples := float64(bytes) / float64(mean)
	draw := rand.Float64()
	if draw >= samples { // more than the chance, and cheaper than it
		return false
	}
	return draw < -math.Expm1(-samples)
}

// tagRates are the tags with a mean of their own. They are read without a
// lock.
type tagRates struct {
	mu  sync.Mutex
	all atomic.Pointer[map[core.Tag]uint64]
}

// of is the tag's mean, if it has one of its own.
func (r *tagRates) of(tag core.Tag) (mean uint64, ok bool) {
	all := r.all.Load()
	if all == nil {
		return 0, false
	}
	mean, ok = (*all)[tag]
	return mean, ok
}

// change replaces the means by a changed copy.
func (r *tagRates) change(f func(map[core.Tag]uint64)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rates := map[core.Tag]uint64{}
	if old := r.all.Load(); old != nil {
		rates = maps.Clone(*old)
	}
	f(rates)
	r.all.Store(&rates)
}

// SampleTag gives a tag a mean of its own between guarded bytes in mode
// Sample: 0 guards none of its blocks, 1 every one. A hunted tag stays hunted.
// It works from the next allocation on, in any mode, and does not block.
func (r *Resource) SampleTag(tag core.Tag, meanBytes uint64) {
	r.rates.change(func(rates map[core.Tag]uint64) { rates[tag.OrUntagged()] = meanBytes })
}

// SampleTagAsOthers takes back what SampleTag said of a tag.
func (r *Resource) SampleTagAsOthers(tag core.Tag) {
	r.rates.change(func(rates map[core.Tag]uint64) { delete(rates, tag.OrUntagged()) })
}
