package cuda

import (
	"cmp"

	"github.com/fencepost-gpu/fencepost/core/readings"
)

// census is what the books and the streams have counted since the beginning.
// Every number only grows, so that two equal ones have nothing between them.
type census struct {
	callCounts
	// entered is the blocks that came into the books and enteredBytes their
	// size, mapped what of both is isolated and so not of the memory.
	entered, enteredBytes, mapped, mappedBytes uint64
}

// callCounts are calls of the memory's that succeeded on a stream, and frees of isolated
// blocks that were queued; of those that were given the bytes too. They change in one
// step with the call, under the stream's lock.
type callCounts struct{ allocated, freed, freedBytes uint64 }

func (n *callCounts) noteFreed(bytes uint64) { n.freed, n.freedBytes = n.freed+1, n.freedBytes+bytes }

func (n callCounts) plus(m callCounts) callCounts {
	return callCounts{n.allocated + m.allocated, n.freed + m.freed, n.freedBytes + m.freedBytes}
}

// complete reports whether everything that was taken is in the books. They hear of it
// last, so they can be behind the others only.
func (c *census) complete() bool { return c.entered == c.allocated+c.mapped }

// outstanding is what must be taken of the memory: what came into the books, less
// the frees that are queued. A block that was given back and whose free is blocked
// counts, because the memory does not have it yet.
func (c *census) outstanding() int64 { return int64(c.enteredBytes - c.mappedBytes - c.freedBytes) }

// takeCensus visits every stream once, under its lock. So it comes between two
// calls there and never into the middle of one.
func (r *tracker) takeCensus() (c census) {
	streams, gone := r.streams.table.present()
	c.callCounts = gone
	for _, s := range streams {
		s.Lock()
		c.callCounts = c.plus(s.calls)
		s.Unlock()
	}
	r.streams.table.eachBooks(streams, func(b *streamBooks) {
		blocks, bytes := b.Entered()
		c.entered += blocks
		c.enteredBytes += bytes
	})
	c.mapped, c.mappedBytes = clamp(r.isolated.Load()), clamp(r.isolatedBytes.Load())
	return c
}

// present is the streams alive and what those counted that are gone. A stream
// is in one of them.
func (t *streamTable) present() ([]*stream, callCounts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.streams(), t.removedCalls
}

// driftTries is how often the drift is looked for at a time: on a busy device
// most moments are not quiet.
const driftTries = 64

// Drift is what the books say that the pool has handed out (live
// memory, which here includes what a guard holds, and what was given back and
// waits for its free to be queued) less what the pool says, in bytes. It is
// zero unless one of the two is wrong. Isolated blocks are in neither. Where they agree and the
// pool is the runtime's own, it is what that has mapped less what its streams have of it, taken or
// free, which is zero unless a range was lost or is there twice.
//
// # How it is consistent
//
// The pool is read between two censuses of the books. If these are equal and
// every allocation of the driver's is in the books, no call of this resource
// allocated or freed in between, and none was under way on any stream: the
// reading belongs to these books. Otherwise it is tried again, some times; if
// no moment was quiet, the drift is not known.
//
// It holds no lock over a driver call, waits for the streams' locks for an
// instant each, and is safe for concurrent use. Errors are [core.DriverError].
func (r *tracker) Drift() (readings.Drift, error) {
	before := r.takeCensus()
	for range driftTries {
		now, err := r.readMemory()
		if err != nil {
			return readings.Drift{}, err
		}
		own, quiet := r.memory.drift()
		after := r.takeCensus()
		if quiet && before == after && after.complete() {
			return readings.Drift{Bytes: cmp.Or(after.outstanding()-int64(now.PoolUsed), own), Known: true}, nil
		}
		before = after
	}
	return readings.Drift{}, nil
}
