package cuda

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// memory is where the blocks of a tracker come from, all but the isolated ones. The
// tracker knows who uses a block and when its free may be queued; the memory knows which
// bytes are free. So one tracker serves every source of memory.
//
// # The protocol
//
// take and give are steps in the order of a stream, made with its lock held: the tracker
// has queued there what must come before, and queues what comes after when they have
// returned. They do not wait for the device. Whether they call the driver is the
// memory's affair.
//
//   - Calls for different streams come at the same time, those for one stream do not.
//   - Work that is enqueued on the stream after take may use what that returned, which is
//     aligned to [core.DefaultAlign]. After an error nothing is taken; one for want of memory
//     matches [core.ErrOutOfMemory]. Then makeRoom is called, with that error and without the
//     stream's lock: after nil the tracker tries again, for others may have been quicker, and
//     otherwise it returns what makeRoom said.
//   - What give is passed may be used by work that is ordered behind what was enqueued on
//     that stream before, and behind a frontier, if it is passed one: that is a memory's that
//     gives at once. A take on the same stream must be able to use what was given there
//     before, even if the device has not come to it: budgets lend it.
//   - give is passed the address and the size with which the memory was taken, once, and not
//     always on the stream on which it was taken. After an error it is still taken, and the
//     tracker tries again.
//
// Where giveAtOnce is true, whatever is given may be taken on any stream at once, behind waits
// that the memory queues itself on the stream that takes. So its block is released with it, without
// a look at whether the device has come to its free; with a frontier it is released when that is seen
// completed. Otherwise it is given when its frontier is seen completed, and released when its free is.
//
// makeRoom, reap, trim, tick and close may wait for the driver, and no lock is held over them.
// Close comes last: the tracker lets the others end before, and calls none of them but give
// after it. What is still taken then stays good until it is given. A reap of
// the tracker's calls close again, for what was given since.
type memory interface {
	take(s *stream, bytes uint64) (ptr uint64, err error)
	give(s *stream, ptr, bytes uint64, behind *fence.Frontier) error
	makeRoom(s *stream, req *core.Request, err error) error
	giveAtOnce() bool
	// given is what a drain waits for besides the frees that are pending: completed reports
	// whether reaps have seen that the device has come to all that was given before.
	given() (completed func() bool)
	// due reports whether a reap may see more than the one before.
	due() bool
	// reap looks at what the device has completed, so that addTo tells of now.
	reap() error
	// trim gives free memory back to the device, but for so many bytes.
	trim(keep uint64) error
	// tick is a step, on each tick of the reaper, of taking what will be needed soon, and of giving back what
	// was not needed for some time: it takes little time, and calls no driver where neither is to be done.
	tick(now time.Time) error
	// bind tells the memory whose it is, before anything else is called: that has the share which
	// bounds it. held is what it holds of the device at most, calls under way included.
	bind(r *tracker)
	held() uint64
	// shortage is what the memory holds and has in use, and what of the rest is behind work or in
	// pieces: a part of the refusal of a request. It makes no call of the driver.
	shortage() core.OutOfMemoryError
	// shareSet tells that the share was changed. It does not block.
	shareSet()
	// addTo adds what the memory has of the device (Reserved, ReservedHigh), what of
	// that is taken (PoolUsed, PoolUsedHigh) and what is not (Cached): the drift is measured
	// against PoolUsed. It makes no call of the driver.
	addTo(st *core.Stats)
	// drift is by how many bytes the memory's own books contradict each other, if no stream takes
	// or gives meanwhile; ok is false if that cannot be said now.
	drift() (bytes int64, ok bool)
	close() error
}

// memoryGone is in place of the number of those who are in a call of the memory's, once
// it is closed or about to be.
const memoryGone = -1

// withMemory calls f, and the memory is not closed meanwhile. A step under a stream's lock does
// without: who closes waits for the lock.
func (r *tracker) withMemory(op string, f func() error) error {
	for {
		n := r.inMemory.Load()
		if n == memoryGone {
			return errMemoryGone(op)
		}
		if r.inMemory.CompareAndSwap(n, n+1) {
			break
		}
	}
	defer r.inMemory.Add(-1)
	return f()
}

// refuseClosed is the error of what needs the memory when that is gone.
func (r *tracker) refuseClosed(op string) error {
	if r.inMemory.Load() == memoryGone {
		return errMemoryGone(op)
	}
	return nil
}

func errMemoryGone(op string) error {
	return fmt.Errorf("%s refused: the resource is %w", op, core.ErrClosed)
}

// closeMemory waits for those who are in a call of the memory's.
func (r *tracker) closeMemory(ctx context.Context) error {
	if err := deadline.Poll(ctx, func() (bool, error) { return r.inMemory.CompareAndSwap(0, memoryGone), nil }); err != nil {
		return fmt.Errorf("closing the memory: it is being trimmed or asked: %w", err)
	}
	streams := r.streams.table.streams()
	err := deadline.Poll(ctx, func() (bool, error) {
		for ; len(streams) > 0; streams = streams[1:] {
			if !streams[0].TryLock() { // its holder may be in an allocation that saw the memory open
				return false, nil
			}
			streams[0].Unlock()
		}
		return true, nil
	})
	if err != nil {
		err = fmt.Errorf("closing the memory: a stream is busy: %w", err)
	} else {
		err = r.memory.close()
	}
	if err != nil {
		r.inMemory.Store(0)
	}
	return err
}

// readMemory is what the memory adds to Stats now.
func (r *tracker) readMemory() (st core.Stats, err error) {
	if err = r.withMemory("PoolStats", r.memory.reap); err == nil {
		r.memory.addTo(&st) // of this reap, or of one that began later
	}
	return st, err
}

// PoolStats reads the pool, the driver's or our own, in bytes: what it holds of the device
// and what is allocated from it, each with its highest value since the pool
// was made. It makes a driver call; errors are [core.DriverError], and one that
// matches [core.ErrClosed] after Close.
func (r *tracker) PoolStats() (driver.PoolStats, error) {
	st, err := r.readMemory()
	return driver.PoolStats{Used: st.PoolUsed, UsedHigh: st.PoolUsedHigh, Reserved: st.Reserved, ReservedHigh: st.ReservedHigh}, err
}

// TrimPool reaps, and gives memory that is not allocated back to the
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
	return r.withMemory("TrimPool", func() error { return r.memory.trim(keep) })
}
