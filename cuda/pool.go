package cuda

import (
	"context"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// PoolStats reads the driver's pool, in bytes: what it holds of the device
// and what is allocated from it, each with its highest value since the pool
// was made. It makes a driver call; errors are [core.DriverError], and one that
// matches [core.ErrClosed] after Close.
func (r *tracker) PoolStats() (reserved, reservedHigh, used, usedHigh uint64, err error) {
	p, err := r.readPool()
	return p.Reserved, p.ReservedHigh, p.Used, p.UsedHigh, err
}

// TrimPool reaps, and gives memory that nobody has allocated back to the
// device, down to keep bytes that the pool keeps; memory whose free is not
// completed stays. Isolated blocks are none of the pool's and keep nothing but addresses. Allocations that need more take it from the device again, which costs
// far more than the pool does: trim for the sake of a neighbour or after a
// peak, not in a loop. It changes no block and no budget, is safe for
// concurrent use, and may block in the driver. Errors are [core.DriverError], and one that
// matches [core.ErrClosed] after Close, when there is no pool any more.
func (r *tracker) TrimPool(keep uint64) error {
	if err := r.refuseClosed("TrimPool"); err != nil {
		return err
	}
	if err := r.ReapPending(context.Background()); err != nil {
		return err
	}
	return r.withPool("TrimPool", func(p driver.Pool) error { return r.drv.PoolTrim(p, keep) })
}

// census is what the books and the streams have counted since the beginning.
// Every number only grows, so that two equal ones have nothing between them.
type census struct {
	callCounts
	// entered is the blocks that came into the books and enteredBytes their
	// size, mapped what of both is isolated and so not of the pool.
	entered, enteredBytes, mapped, mappedBytes uint64
}

// callCounts are calls of the driver that succeeded on a stream: allocations from
// the pool and frees that were queued, with the bytes of the latter that are
// the pool's. They change in one step with the call, under the stream's lock.
type callCounts struct{ allocated, freed, freedBytes uint64 }

func (n callCounts) plus(m callCounts) callCounts {
	return callCounts{n.allocated + m.allocated, n.freed + m.freed, n.freedBytes + m.freedBytes}
}

// complete reports whether every allocation that the driver made is in the
// books. They hear of it last, so they can be behind the others only.
func (c *census) complete() bool { return c.entered == c.allocated+c.mapped }

// inPool is what the pool must have handed out: what came into the books, less
// the frees that are queued. A block that was given back and whose free is blocked
// counts, because the pool still has it out.
func (c *census) inPool() int64 { return int64(c.enteredBytes - c.mappedBytes - c.freedBytes) }

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
	c.mapped, c.mappedBytes = clamp(r.isolated.entered.Load()), clamp(r.isolated.enteredBytes.Load())
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

// Drift is what the books say that the driver's pool has handed out (live
// memory, which here includes what a guard holds, and what was given back and
// waits for its free to be queued) less what the driver says, in bytes. It is
// zero unless one of the two is wrong. Isolated blocks are in neither.
//
// # How it is consistent
//
// The pool is read between two censuses of the books. If these are equal and
// every allocation of the driver's is in the books, no call of this resource
// allocated or freed in between, and none was under way on any stream: the
// reading belongs to these books. Otherwise it is tried again, some times; if
// no moment was quiet, ok is false and there is no drift to tell.
//
// It holds no lock over a driver call, waits for the streams' locks for an
// instant each, and is safe for concurrent use. Errors are [core.DriverError].
func (r *tracker) Drift() (bytes int64, ok bool, err error) {
	before := r.takeCensus()
	for range driftTries {
		pool, err := r.readPool()
		if err != nil {
			return 0, false, err
		}
		after := r.takeCensus()
		if before == after && after.complete() {
			return after.inPool() - int64(pool.Used), true, nil
		}
		before = after
	}
	return 0, false, nil
}

// poolReading is what the pool said, and when it was queried: readings are
// numbered before the driver is called.
type poolReading struct {
	driver.PoolStats
	number uint64
}

// readPool reads the driver's pool, for Stats too. Of several readings at a time
// the one that was begun last stays: on a runtime that goes quiet nobody would
// correct an older one that came back later.
func (r *tracker) readPool() (driver.PoolStats, error) {
	reading := &poolReading{number: r.readings.Add(1)}
	err := r.withPool("PoolStats", func(p driver.Pool) (err error) {
		reading.PoolStats, err = r.drv.PoolStats(p)
		return err
	})
	if err != nil {
		return driver.PoolStats{}, err
	}
	for last := r.poolStats.Load(); last.number < reading.number && !r.poolStats.CompareAndSwap(last, reading); {
		last = r.poolStats.Load()
	}
	return reading.PoolStats, nil
}
