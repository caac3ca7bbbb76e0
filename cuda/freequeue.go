package cuda

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// freeState is what a retired block waits for. The way of a free through the states
// is in docs/architecture.md ("How a free goes"); freestates_test.go
// holds the tables below, cell by cell.
//
// What happens to a block, while whatever else it waits for lasts:
//
//	event                             launches  stream    capture   uses      retry     device    unmap
//	a launch finishes, not the last   launches  -         -         -         -         -         -
//	the last launch finishes          device    -         -         -         -         -         -
//	the last launch is aborted        device    -         -         -         -         -         -
//	the last launch cannot be fenced  launches  -         -         -         -         -         -
//	the stream's lock is free         launches  device    capture   uses      retry     device    unmap
//	the capture ends                  launches  stream    device    uses      retry     device    unmap
//	the driver obliges                launches  stream    capture   uses      device    device    unmap
//	the device passes the mark        launches  stream    capture   uses      retry     released  unmap
//	the device completes the uses     launches  stream    capture   device    retry     device    unmap
//	the unmap succeeds                launches  stream    capture   uses      retry     device    released
//	the stream is given up            launches  device    capture   uses      retry     device    unmap
//	Close                             launches  stream    capture   uses      retry     device    unmap
//	the device is lost                launches  stream    capture   uses      retry     device    unmap
//
// A dash: no launch is announced on a retired block, and none can be, so that none ends.
// No code is told that a capture ends, a driver call succeeds, the device passes or an unmap
// would succeed: the reap after it sees that. A block that cannot be fenced is poisoned and
// waits for ever; a stream that captures is not given up. The others take the states as
// they are, and move nothing. The end of a launch that a capture holds back (see
// captureBacklog) comes by the reap after the capture's end, and counts as the launch's end:
// a block that waits for launches moves on then.
//
// Who sees that what a block waited for is over:
//
//	look                        capture   uses      retry     device    unmap
//	a reap                      device    device    device    released  released
//	a trim                      device    device    device    released  released
//	allocations of the stream   capture   uses      retry     released  unmap
//	frees of the stream         capture   uses      retry     released  unmap
//	isolated allocations of it  capture   uses      retry     released  released
//
// Where allocations and frees find an isolated block completed, it waits for its unmap.
//
// What becomes of an attempt to queue a free, by what it waited for:
//
//	attempt                     launches  stream    capture   uses      retry
//	nothing in the way          device    device    device    device    device
//	the stream captures         capture   capture   capture   capture   capture
//	the driver refuses          retry     live      retry     retry     retry
//	the stream is locked        retry     stream    capture   uses      retry
//	the stream is given up      device    device    -         device    device
//
// An attempt that meets uses on other streams which are not completed, and nothing else in the way,
// leaves the block to wait for them.
//
// Where the memory gives at once (memory.giveAtOnce), a block that is not isolated is
// released in the attempt that the table says moves it to device, or by the look that sees its uses completed.
//
// The end of a launch does not wait for a stream's lock, the others do. It is Deallocate
// that attempts from waitsForStream, so it can refuse the free.
type freeState uint8

const (
	// waitsForLaunches: launches are announced on the block. The last of them to end
	// moves it on; it is in no list, because those launches know the block.
	waitsForLaunches freeState = iota + 1
	// waitsForStream: a caller is about to queue the free on the stream.
	waitsForStream
	// waitsForCapture: the stream is capturing, so nothing may be queued on it.
	waitsForCapture
	// waitsForRetry: the driver's call failed, or the stream was busy and it was not
	// for the caller to wait for it.
	waitsForRetry
	// waitsForUses: uses on other streams are not seen completed, and the stream is not ordered
	// after them. The free is not queued; over the own pool it is, and the stream that takes the memory
	// waits for them.
	waitsForUses
	// waitsForDevice: the free is queued on the stream, and the device has not been
	// seen to have completed it.
	waitsForDevice
	// waitsForUnmap: the device has completed it, and the block is isolated, so that
	// its memory must be unmapped.
	waitsForUnmap
	// waitsForNothing: the free is queued, and the memory gives at once, so that the block is
	// released by who queued it.
	waitsForNothing
)

// freeQueue is where the retired blocks of a stream wait until they are released. It
// has three lists, in the order in which a block goes through them:
//
//   - parked, what waits for a capture or to be tried again;
//   - pending, what waits for the device;
//   - unmapping, what waits for its unmap.
//
// The end of a launch, and a driver's call that fails, moves a
// block without waiting for anybody; what met a capture is moved by a reap. Parked and unmapping have a lock of their own,
// which is never held over a call of the driver. The stream's own lock may be, and is
// needed for pending alone. A free that nothing holds up touches nothing else
// until it is released.
//
// The frees of a stream that was given up are queued on another one, the backstop, and
// are pending there. Until then they wait with their own stream, or with the default
// stream if their own has been forgotten.
type freeQueue struct {
	// The stream's lock guards these. pending is oldest first, from head on: first
	// come those that are known to be completed, then those in front of the mark, a
	// recorded point.
	pending           []pendingFree
	head              int
	completed, marked int
	mark              *fence.Point
	// operations and freedBytes count since the last look at pending.
	operations int
	freedBytes uint64

	// entered and left count the frees that came to pending and that left it. They
	// change under the stream's lock.
	entered, left atomic.Uint64
	bytes         freeBytes

	// retrying is held by the one who tries again what is parked.
	retrying sync.Mutex

	mu        sync.Mutex
	parked    []parkedFree
	parks     uint64
	unmapping []pendingFree
	// closed: the stream is forgotten, so that no reap looks here.
	closed bool
	// released is up to which free all are released, ahead are those beyond.
	released uint64
	ahead    []freeRange
	// waiting is how many are parked, those being tried included, or wait for their
	// unmap.
	waiting atomic.Int64
	// leaving is how many waited for uses, are parked no more and not released yet.
	leaving atomic.Int64
}

// parkedFree is a retired block whose free could not be queued, and why. Its number counts those
// that were parked with its stream.
type parkedFree struct {
	block  *block
	waits  freeState
	number uint64
}

// pendingFree is a free that is queued. Its number counts the frees of its stream. Its
// bytes are those that later allocations can use in stream order: none of an isolated
// block.
type pendingFree struct {
	block  *block
	bytes  uint64
	number uint64
}

// freeRange is the frees from one number to another, which it does not include.
type freeRange struct{ from, to uint64 }

// pendingFrees is how many wait for the device, or were not taken since.
func (q *freeQueue) pendingFrees() uint64 {
	left := q.left.Load() // first: entered must not be behind it
	return q.entered.Load() - left
}

// due reports whether a reap may find something to do.
func (q *freeQueue) due() bool { return q.pendingFrees() > 0 || q.waiting.Load() > 0 }

// park keeps a block whose free could not be queued. It answers false if no reap would
// look for it here any more.
func (q *freeQueue) park(b *block, waits freeState) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.parked = append(q.parked, parkedFree{b, waits, q.parks})
	q.parks++
	q.waiting.Add(1)
	return true
}

// retry calls queue for each block that is parked, but for none whose stream it has just
// met capturing. Those that are queued after that leave, the others stay. It returns the
// first error.
func (q *freeQueue) retry(queue func(*block) (freeState, error)) (first error) {
	if q.waiting.Load() == 0 {
		return nil
	}
	q.retrying.Lock() // they must not be taken for queued meanwhile
	defer q.retrying.Unlock()
	q.mu.Lock()
	tried := slices.Clone(q.parked)
	q.mu.Unlock()
	var capturing *block // of that stream
	for i := range tried {
		p := &tried[i]
		if capturing != nil && p.block.stream == capturing.stream {
			p.waits = waitsForCapture
			continue
		}
		var err error
		if p.waits, err = queue(p.block); p.waits == waitsForCapture {
			capturing = p.block
		}
		first = cmp.Or(first, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	left := slices.DeleteFunc(tried, func(p parkedFree) bool { return p.waits >= waitsForDevice })
	q.waiting.Add(int64(len(left) - len(tried)))
	q.parked = append(left, q.parked[len(tried):]...) // others came meanwhile, none left
	return first
}

// awaited returns whether frees that are parked now still wait for uses, or such frees are being
// released.
func (q *freeQueue) awaited() func() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.parks
	return func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return slices.ContainsFunc(q.parked, func(p parkedFree) bool { return p.number < now && p.waits == waitsForUses }) || q.leaving.Load() > 0
	}
}

// enter takes in a free that is queued on the stream; the stream's lock must be held.
func (q *freeQueue) enter(b *block) (bytes uint64) {
	p := pendingFree{block: b, number: q.entered.Load()}
	if !b.isIsolated() {
		p.bytes = b.core.Bytes
		q.bytes.queued.Add(p.bytes)
	}
	q.freedBytes += max(p.bytes, b.mapped)
	q.pending = append(q.pending, p)
	q.entered.Store(p.number + 1)
	return p.bytes
}

// lookIsDue reports whether the next step of the stream looks at what is pending; the
// stream's lock must be held. It counts the steps.
func (q *freeQueue) lookIsDue() bool {
	q.operations++
	return q.pendingFrees() > 0 && (q.completed > 0 || q.operations >= reapOperations || q.freedBytes >= reapBytes)
}

// markAll puts a mark behind all that is pending; the stream's lock must be held.
func (q *freeQueue) markAll(mark *fence.Point) { q.mark, q.marked = mark, int(q.pendingFrees()) }

// markCompleted notes that the device has come to the mark; the stream's lock must be
// held.
func (q *freeQueue) markCompleted() {
	q.mark.Release()
	q.completed, q.marked, q.mark = q.marked, 0, nil
}

// take moves at most so many completed frees to the end of a batch; the stream's lock
// must be held.
func (q *freeQueue) take(batch []pendingFree, most int) []pendingFree {
	n := min(q.completed, most)
	from := q.pending[q.head : q.head+n]
	batch = append(batch, from...)
	clear(from)
	q.head += n
	q.completed -= n
	q.left.Store(q.left.Load() + uint64(n))
	if 2*q.head >= len(q.pending) { // each entry is moved once, on average
		rest := copy(q.pending, q.pending[q.head:])
		clear(q.pending[rest:])
		q.pending, q.head = q.pending[:rest], 0
	}
	return batch
}

// setAside moves the isolated blocks of a batch to unmapping, and returns the others.
func (q *freeQueue) setAside(batch []pendingFree) []pendingFree {
	if !slices.ContainsFunc(batch, func(p pendingFree) bool { return p.block.isIsolated() }) {
		return batch
	}
	others := batch[:0]
	for _, p := range batch {
		if p.block.isIsolated() {
			q.awaitUnmap(p)
		} else {
			others = append(others, p)
		}
	}
	clear(batch[len(others):])
	return others
}

// awaitUnmap keeps a block that the device is done with until a reap unmaps it.
func (q *freeQueue) awaitUnmap(p pendingFree) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unmapping = append(q.unmapping, p)
	q.waiting.Add(1)
}

// takeUnmaps takes at most so many of the blocks out that wait for their unmap. They
// count as waiting until unmapDone is called for each, or it is put back.
func (q *freeQueue) takeUnmaps(most int) []pendingFree {
	if q.waiting.Load() == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(most, len(q.unmapping))
	due := q.unmapping[:n:n]
	q.unmapping = q.unmapping[n:]
	return due
}

func (q *freeQueue) putBack(p pendingFree) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.unmapping = append(q.unmapping, p)
}

func (q *freeQueue) unmapDone() { q.waiting.Add(-1) }

// noteReleased notes that the frees of a range are released. Several batches may be
// on their way at the same time: one that overtakes an older one counts when the older
// one is done.
func (q *freeQueue) noteReleased(r freeRange) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.from != q.released {
		if i := slices.IndexFunc(q.ahead, func(before freeRange) bool { return before.to == r.from }); i >= 0 {
			q.ahead[i].to = r.to // what waits for an unmap may keep the list for long
		} else {
			q.ahead = append(q.ahead, r)
		}
		return
	}
	for next := 0; next >= 0; {
		q.released = r.to
		next = slices.IndexFunc(q.ahead, func(later freeRange) bool { return later.from == r.to })
		if next >= 0 {
			r = q.ahead[next]
			q.ahead = slices.Delete(q.ahead, next, next+1)
		}
	}
}

// releasedUpTo is the number up to which all frees are released.
func (q *freeQueue) releasedUpTo() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.released
}

// count is how many blocks wait in a state that a list of the queue stands for.
func (q *freeQueue) count(state freeState) int {
	switch state {
	case waitsForDevice:
		return int(q.pendingFrees())
	case waitsForUnmap:
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.unmapping)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, p := range q.parked {
		if p.waits == state {
			n++
		}
	}
	return n
}

// close ends the queue of a stream that is to be forgotten, unless something waits or
// is on its way to be released; the stream's lock must be held.
func (q *freeQueue) close() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting.Load() > 0 || q.released < q.entered.Load() {
		return false
	}
	q.closed = true
	return true
}

// freeBytes are the bytes of one stream's frees that were queued and that the device
// has completed; they only grow. completed rises before a listener is told, so that no
// byte is both released and still lendable.
type freeBytes struct {
	queued, completed atomic.Uint64
	// apart is the bytes of isolated blocks, which no later allocation can use in
	// stream order, and over the own pool of those that were not freed at hand (stream.freedAtHand). Outside they
	// count as queued and completed at once, when they are released.
	apart atomic.Uint64
}

func (c *freeBytes) counters() core.FreeCounters {
	both := c.apart.Load()
	completed := c.completed.Load() // first: queued must not be behind it
	return core.FreeCounters{Queued: c.queued.Load() + both, Completed: completed + both}
}

// pending is the bytes that are queued and not completed.
func (c *freeBytes) pending() uint64 {
	completed := c.completed.Load() // first: queued must not be behind it
	return c.queued.Load() - completed
}

// noteReleased counts a block that is released.
func (c *freeBytes) noteReleased(p *pendingFree) {
	if p.block.isIsolated() {
		c.apart.Add(p.block.core.Bytes)
		return
	}
	c.completed.Add(p.bytes)
}
