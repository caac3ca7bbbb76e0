package cuda

import (
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// A block asked for with core.Request.Isolated is not of the pool: it has
// addresses of its own, and memory that is mapped there for its life alone. Its
// readiness is not an event: the calls are the host's, so it is ready for
// every stream when Allocate returns, and no access stands for it.
//
// # The free
//
// An unmap respects no stream's order, so it is made when the device is known to
// be done with the block. The free is queued like any other: the waits for uses
// on other streams go into the allocation stream, and the mark behind the
// stream's frees covers it. Where the pool would get its memory in the order of
// the stream, nothing is enqueued. Whoever finds the mark completed sets the block
// aside: it may be the end of a launch that finds it, and an unmap takes long. A
// reap, or the next isolated allocation on the stream, unmaps the block under no lock,
// and only then is it released. Its bytes are never reusable in
// stream order, so the free counters count them, queued and completed at once,
// when they are back.
//
// # Addresses
//
// They stay reserved, with nothing there, so that a late access faults. The
// oldest are given back when there are too many.
//
// # Failures
//
// A mapping is taken down step by step, and remembers how far that has come.
// What fails is kept and tried again by every reap: a block that could not be
// unmapped is pending until it can be.

// Defaults of [AsyncConfig].
const (
	DefaultIsolatedAddresses uint64 = 1 << 40
	DefaultIsolatedRanges           = 1 << 16
)

// isolation is what an AsyncResource keeps of its isolated blocks.
type isolation struct {
	// granularity is 0 if the device maps no memory.
	granularity         uint64
	maxBytes            uint64
	maxRanges           int
	mapped, mappedHigh  atomic.Int64
	addresses, leftover atomic.Int64 // bytes kept reserved; mappings to take down
	// entered and enteredBytes are the blocks that ever came into the books,
	// or are about to.
	entered, enteredBytes atomic.Int64

	mu sync.Mutex
	// remains is what is left of mappings that are no block's.
	remains []*mapping
	// kept are addresses without memory, oldest first. yielding is held by who
	// gives some back.
	kept     []addressRange
	yielding sync.Mutex
}

type addressRange struct{ ptr, bytes uint64 }

// mapping is memory at addresses of its own, as far as it is made or taken down.
type mapping struct {
	ptr, bytes uint64
	handle     driver.MemHandle
	mapped     bool
}

func (i *isolation) configure(cfg AsyncConfig, granularity uint64) {
	i.granularity, i.maxBytes, i.maxRanges = granularity, cfg.IsolatedAddresses, cfg.IsolatedRanges
	if i.maxBytes == 0 {
		i.maxBytes = DefaultIsolatedAddresses
	}
	if i.maxRanges == 0 {
		i.maxRanges = DefaultIsolatedRanges
	}
}

// enter counts a block that comes into the books next. The books must be the
// last to hear of any allocation, and the count come before the bytes: so
// whatever is on its way is lacking in the books, and nothing on its way makes up
// for something else. See [census].
func (i *isolation) enter(b *core.Block) {
	i.entered.Add(1)
	i.enteredBytes.Add(int64(b.Bytes))
}

// addMapped counts memory that was mapped.
func (i *isolation) addMapped(bytes uint64) {
	now := i.mapped.Add(int64(bytes))
	for high := i.mappedHigh.Load(); now > high && !i.mappedHigh.CompareAndSwap(high, now); {
		high = i.mappedHigh.Load()
	}
}

func (i *isolation) addTo(st *core.Stats) {
	st.Isolated, st.IsolatedHigh = clamp(i.mapped.Load()), clamp(i.mappedHigh.Load())
	st.IsolatedAddresses = clamp(i.addresses.Load())
}
