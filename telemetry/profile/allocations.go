package profile

import (
	"slices"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

// maxSites bounds the pairs of stack and tag that [Allocations] counts. They
// take some 700 bytes each. What is beyond counts as unsampled.
const maxSites = 8192

// glimpse is how many sites are read at a time: an allocation that counts its
// stack waits for no more.
const glimpse = 64

// Allocations counts everything that a device was ever asked for, in all and,
// as far as stacks are kept, by stack and tag. It is safe for concurrent use.
//
// The path of an allocation and of a free pays nothing for it: the totals are those of the
// resource's books. A stack costs one short lock when it is kept, beside the microsecond of
// walking it.
type Allocations struct {
	base core.Resource

	mu sync.Mutex
	// sites are where each site is in counts, which only grows.
	sites  map[site]int
	counts []counted
}

// counted is what was allocated at a site.
type counted struct {
	site
	values
}

// site is where allocations of one tag are made.
type site struct {
	stack frames
	tag   core.Tag
}

// NewAllocations counts the allocations of base, the innermost resource of a stack. Stacks count
// from then on.
func NewAllocations(base core.Resource) *Allocations {
	return &Allocations{base: base, sites: map[site]int{}}
}

// Sampled counts a block whose stack was kept, when it was allocated. Bytes
// is what base was asked for. It does not block.
func (a *Allocations) Sampled(bytes uint64, tag core.Tag, stack core.Stack) {
	s := site{framesOf(stack), tag.OrUntagged()}
	a.mu.Lock()
	defer a.mu.Unlock()
	at, known := a.sites[s]
	if !known {
		if len(a.counts) == maxSites {
			return
		}
		at = len(a.counts)
		a.sites[s] = at
		a.counts = append(a.counts, counted{site: s})
	}
	a.counts[at].values = a.counts[at].plus(values{allocObjects: 1, allocBytes: bytes})
}

// collect adds the counts to t: by stack, and what is left as unsampled.
func (a *Allocations) collect(t *table, device int) {
	var sampled values
	for from := 0; ; from += glimpse { // before the totals, which then cover them
		few := a.few(from)
		for i := range few {
			c := &few[i]
			t.add(key{stack: t.stacks.intern(c.stack.counters()), tag: c.tag, device: device, noStream: true}, c.values)
			sampled = sampled.plus(c.values)
		}
		if len(few) < glimpse {
			break
		}
	}
	books := a.base.Stats()
	objects, bytes := books.Allocations, books.AllocatedBytes
	t.add(key{device: device, noStream: true}, values{
		allocObjects: objects - min(objects, sampled.allocObjects), allocBytes: bytes - min(bytes, sampled.allocBytes)})
}

// few copies some of the counts.
func (a *Allocations) few(from int) []counted {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.counts[from:min(from+glimpse, len(a.counts))])
}
