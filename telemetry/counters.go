package telemetry

import (
	"sync/atomic"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
)

// counters count calls by operation and result. A success is one atomic add
// to a stripe that goroutines on other stacks rarely share; failures are
// rare and share one cell each. Nothing here allocates, locks or reads a
// clock.
type counters struct {
	succeeded [stripes]stripe
	failed    [operations][reasons]atomic.Uint64
}

const (
	// stripes makes it rare that two running goroutines meet on one; at a
	// few hundred bytes each they are cheap.
	stripeBits = 6
	stripes    = 1 << stripeBits
	// operations is one more than the last operation that a caller makes;
	// core.OpRefusal and core.OpRelease are events, not calls.
	operations = int(core.OpDrain) + 1
)

// stripe holds one counter for each operation. What follows the counters
// keeps them off the cache lines of the next stripe, wherever the allocator
// puts the first.
type stripe struct {
	ok [operations]atomic.Uint64
	_  [128]byte
}

// count notes one call of op that returned err.
func (c *counters) count(op core.Op, err error) {
	if err != nil {
		c.failed[op][ReasonOf(err)].Add(1)
		return
	}
	c.succeeded[stripeIndex()].ok[op].Add(1)
}

// stripeIndex picks a stripe by the address of the goroutine's stack: the
// cheapest thing at hand that a goroutine keeps and others do not share.
// The address is a hint only and is never turned back into a pointer.
func stripeIndex() uint64 {
	var here byte
	page := uint64(uintptr(unsafe.Pointer(&here))) >> 11
	return page * 0x9E3779B97F4A7C15 >> (64 - stripeBits)
}

// snapshot sums the stripes. Each counter is exact; their combination is
// exact while no call is under way.
func (c *counters) snapshot() Operations {
	var o Operations
	for op := range operations {
		for i := range c.succeeded {
			o.succeeded[op] += c.succeeded[i].ok[op].Load()
		}
		for reason := range reasons {
			o.failed[op][reason] = c.failed[op][reason].Load()
		}
	}
	return o
}

// Operations is a snapshot of the calls that a [Resource] has seen, by
// operation and result. It is a value and shares nothing.
type Operations struct {
	succeeded [operations]uint64
	failed    [operations][reasons]uint64
}

// Succeeded is the number of calls of op that returned no error.
func (o *Operations) Succeeded(op core.Op) uint64 {
	if int(op) >= operations {
		return 0
	}
	return o.succeeded[op]
}

// Failed is the number of calls of op that returned an error of that reason.
func (o *Operations) Failed(op core.Op, reason Reason) uint64 {
	if int(op) >= operations || int(reason) >= reasons {
		return 0
	}
	return o.failed[op][reason]
}

// Refusals is the number of requests for memory, allocations and
// reservations, that were refused for that reason. It counts what callers
// were told: a refusal that a layer below cured is not among them.
func (o *Operations) Refusals(reason Reason) uint64 {
	return o.Failed(core.OpAllocate, reason) + o.Failed(core.OpReserve, reason)
}

// Total is the number of calls of all operations, whatever their result.
func (o *Operations) Total() uint64 {
	var total uint64
	for op := range operations {
		total += o.succeeded[op]
		for _, n := range o.failed[op] {
			total += n
		}
	}
	return total
}
