package cuda

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/internal/fit"
	"github.com/fencepost-gpu/fencepost/cuda/internal/pages"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// arenas is memory of pages that the runtime maps itself and shares out among the arenas of
// the streams. docs/pool.md has a picture.
//
// # Where a block comes from
//
// From its stream's arena, which takes the lock of the stream and of the arena. If no range
// there is long enough, in this order:
//
//  1. Takeover: another arena has free pages that the stream comes after already.
//  2. Steal: other arenas, one or several, have free pages in a row; a point is recorded behind
//     everything on the stream of each, and the stream waits for that. Before held memory,
//     its own too, it waits for what that is behind.
//  3. Remap: the device is asked how far every stream has come. Free pages that it has come
//     to get other addresses, where free memory of the stream lacks the fewest pages.
//  4. Grow: what those pages are too few for is more memory from the device. If that has too
//     little, less is missing beside pages that the stream waits for, as in 2.
//
// The first is made by take, under the stream's lock. The others are makeRoom's (makeroom.go). Remaps and
// growth come one at a time, under growing, but for the driver's calls of a large growth; steals share
// moving, also while the driver maps or unmaps memory for another stream. Before a request is
// refused all is tried once more with growing held and moving not shared, and when no large growth is under way, so that
// no page is on its way to an arena. Nothing waits for the device, no two streams are locked at a time, and no memory is
// mapped under the lock of a stream or an arena.
type arenas struct {
	store      *pages.Store
	page, base uint64
	// owners is whose each page is. It changes while the page is on its way, and so free.
	owners []atomic.Pointer[arena]

	// share bounds what is held; tracker explains what is refused.
	share   *share
	tracker *tracker

	// oracle is told of the blocks, if the device has one: under the stream's lock and no
	// arena's, since a finding may be told at once and look into the books. What is given is
	// told before others can take it.
	oracle driver.Oracle
	// times are the tracker's; nil if nobody asks for them.
	times *deviceTimes

	// growing is held over the driver's calls for memory, and so by one call at a time that maps,
	// unmaps, or refuses a request.
	growing sync.Mutex
	// unlocked has room for one, and holds one when growing was unlocked since a request that waits looked.
	unlocked chan struct{}
	// apart is how many large growths call the driver without growing, under which they begin. landed has room
	// for one, and holds one when another has ended since.
	apart  atomic.Int64
	landed chan struct{}
	// moving is held, under growing or without, while pages pass from one arena to another, except for
	// a takeover: shared, but by who must meet all pages in arenas.
	moving sync.RWMutex
	closed bool
	idle   idleTrim
	ahead  ahead

	opening  sync.Mutex
	all      atomic.Pointer[[]*arena]
	usedHigh atomic.Uint64

	counting sync.Mutex
	moves    core.OwnPoolStats // the moves alone
}

// idleTrim is what trimIdle knows; growing guards all but after.
type idleTrim struct {
	// after is how long pages must have been unneeded, negative for no trimming.
	after time.Duration
	// turned is when it was last looked which were.
	turned time.Time
	// under reports that some surplus is left; spare is that of the pages without an address,
	// and seen what was spare at the last look.
	under       bool
	spare, seen uint64
	// shrunk is when more was held than the share, and what was free was given back.
	shrunk time.Time
}

// shrinkInterval is how often a pool that holds more than its share looks what of it became free.
const shrinkInterval = 100 * time.Millisecond

// trimPages is how many pages a step of trimIdle gives back at most, and trimArenas of how many
// arenas it asks the device: on an H200 that is under half a millisecond.
const (
	trimPages  = 16
	trimArenas = 16
)

// holdings is what arenas have, in bytes: their blocks, as they were asked for and as they lie,
// what is free beside those and no whole page, and what is free pages that the device is not known
// to have come to. held is free behind the uses of other streams, and pieces is free beside all
// that.
type holdings struct{ requested, used, fragmented, behind, held, pieces uint64 }

// errNoRoom: the arena has no range that is long enough, nor has another that may be taken
// over.
var errNoRoom = fmt.Errorf("the arena has no room: %w", core.ErrOutOfMemory)

func newArenas(drv driver.Driver, page, addresses, limit uint64) (*arenas, error) {
	store, err := pages.New(drv, page, addresses)
	if err != nil {
		return nil, err
	}
	store.SetLimit(limit)
	m := &arenas{store: store, page: page, base: store.Base(), owners: make([]atomic.Pointer[arena], addresses/page), oracle: driver.OracleOf(drv), unlocked: make(chan struct{}, 1), landed: make(chan struct{}, 1)}
	m.all.Store(&[]*arena{})
	return m, nil
}

func (m *arenas) bind(r *tracker) {
	r.share.page, r.share.streams = m.page, func() int { return len(*m.all.Load()) }
	m.tracker, m.share, m.store.Share = r, &r.share, r.share.forPool
}

func (m *arenas) held() uint64 { return m.store.HeldAndComing() }

// shareSet has nothing to do: each tick looks whether more is held.
func (m *arenas) shareSet() {}

func (m *arenas) take(s *stream, bytes uint64) (uint64, error) {
	if s.arena == nil {
		s.arena = m.open(s)
	}
	if ptr, ok := s.arena.take(bytes); ok {
		m.tellBegin(s, ptr, bytes)
		return ptr, nil
	}
	for _, l := range *m.all.Load() {
		if l == s.arena {
			continue
		}
		if r, ok := l.cut(bytes, l.covered(s)); ok {
			m.count(func(moves *core.OwnPoolStats) { moves.Takeovers.Note(r.bytes, 0) })
			m.own(r, s.arena)
			ptr, _ := s.arena.addAndTake(r, s.Behind(), bytes)
			m.tellBegin(s, ptr, bytes)
			return ptr, nil
		}
	}
	return 0, errNoRoom
}

// tellBegin tells the oracle, before anybody may use the block.
func (m *arenas) tellBegin(s *stream, ptr, bytes uint64) {
	if m.oracle != nil {
		m.oracle.BlockBegins(ptr, bytes, s.Handle())
	}
}

func (m *arenas) give(s *stream, ptr, bytes uint64, behind *fence.Frontier) error {
	if m.oracle != nil {
		var events []driver.Event
		if behind != nil {
			events = slices.Collect(behind.Events)
		}
		m.oracle.BlockEnds(ptr, s.Handle(), events...)
	}
	if at := (ptr - m.base) / m.page; at < uint64(len(m.owners)) {
		if l := m.owners[at].Load(); l != nil && l.give(s, ptr, bytes, behind) {
			return nil
		}
	}
	return driver.NewError("Give", driver.InvalidValue)
}

// owns reports whether a block is of the arena of its stream, which is locked.
func (m *arenas) owns(s *stream, ptr uint64) bool {
	at := (ptr - m.base) / m.page
	return at < uint64(len(m.owners)) && s.arena != nil && m.owners[at].Load() == s.arena
}

// tellEnd is the rest of a free at once where there is an oracle, which must hear of it
// first, and under no arena's lock. The stream may have been given up since.
func (m *arenas) tellEnd(l *arena, s *stream, ptr, bytes uint64) {
	m.oracle.BlockEnds(ptr, s.Handle())
	m.giveEnded(l, ptr, bytes)
}

// giveEnded makes a block free of which the oracle has heard, behind all on the arena's stream.
func (m *arenas) giveEnded(l *arena, ptr, bytes uint64) {
	for given := false; !given; {
		s, _ := l.behindAll()
		s.Lock()
		l.mu.Lock()
		if given = l.stream == s; given {
			l.giveLocked(s, ptr, bytes)
			s.calls.noteFreed(bytes)
		}
		l.mu.Unlock()
		s.Unlock()
	}
}

// open makes the arena of a stream, which is locked.
func (m *arenas) open(s *stream) *arena {
	l := &arena{mu: &s.host, home: s, stream: s, fit: fit.New(m.page)}
	m.opening.Lock()
	defer m.opening.Unlock()
	all := append(slices.Clone(*m.all.Load()), l)
	m.all.Store(&all)
	return l
}

// own makes a run's pages an arena's, which does not have them yet.
func (m *arenas) own(r run, l *arena) {
	page := m.page
	for at := (r.ptr - m.base) / page; at < (r.ptr+r.bytes-m.base)/page; at++ {
		m.owners[at].Store(l)
	}
}

// look asks the device how far it has come on the streams of all arenas. What cannot be asked
// is not known. It returns the first error.
func (m *arenas) look() (first error) {
	for _, l := range *m.all.Load() {
		err := l.look()
		first = cmp.Or(first, err)
	}
	return first
}

func (m *arenas) giveAtOnce() bool { return true }

// given does without the driver: a reap looks.
func (m *arenas) given() (completed func() bool) {
	type place struct {
		stream *stream
		mark   uint64
	}
	var left []place
	for _, l := range *m.all.Load() {
		s, mark := l.behindAll()
		left = append(left, place{s, mark})
	}
	return func() bool {
		left = slices.DeleteFunc(left, func(p place) bool { return p.stream.HasCompleted(p.mark) })
		return len(left) == 0
	}
}

// due is true while the device is not known to have come to all that is free.
func (m *arenas) due() bool {
	return slices.ContainsFunc(*m.all.Load(), func(l *arena) bool { return !l.isCompleted() || l.hasHeld() })
}

// used is the size of all blocks, as they were asked for.
func (m *arenas) used() (bytes uint64) {
	for _, l := range *m.all.Load() {
		l.mu.Lock()
		bytes += l.used
		l.mu.Unlock()
	}
	return bytes
}

func (m *arenas) reap() error {
	m.noteHigh(m.used())
	var looked error
	if m.growing.TryLock() { // who has it looks by itself, and the next reap will do
		looked = m.look()
		if m.apart.Load() == 0 { // no page is on its way to an arena
			m.moving.Lock()
			m.forgetEmpty()
			m.moving.Unlock()
		}
		m.unlockGrowing()
	}
	err := m.store.Reap()
	return cmp.Or(looked, err)
}

// forgetEmpty drops the arenas of streams that were given up and that have no memory any
// more; growing and moving are held, and no large growth is under way, so no run is on its way to them.
func (m *arenas) forgetEmpty() {
	var empty []*arena
	for _, l := range *m.all.Load() {
		if l.isForgettable() {
			l.forgetQueried()
			empty = append(empty, l)
		}
	}
	if empty == nil {
		return
	}
	m.opening.Lock()
	defer m.opening.Unlock()
	all := slices.DeleteFunc(slices.Clone(*m.all.Load()), func(l *arena) bool { return slices.Contains(empty, l) })
	m.all.Store(&all)
}

// noteHigh raises the highest use that was seen.
func (m *arenas) noteHigh(used uint64) {
	for high := m.usedHigh.Load(); used > high && !m.usedHigh.CompareAndSwap(high, used); {
		high = m.usedHigh.Load()
	}
}

func (m *arenas) trim(keep uint64) error {
	m.growing.Lock()
	defer m.unlockGrowing()
	return m.trimTo(keep)
}

// trimTo is trim with growing held.
func (m *arenas) trimTo(keep uint64) error {
	m.ahead.left = 0
	return m.giveBack(func() error {
		_ = m.look() // a reap tells
		if err := m.unmapUnused(keep); err != nil {
			return err
		}
		return m.store.Release(keep)
	})
}

// giveBack counts what f gives back to the device; growing is held.
func (m *arenas) giveBack(f func() error) error {
	start, before := time.Now(), m.store.Released()
	err := f()
	if given := m.store.Released() - before; given > 0 {
		m.count(func(moves *core.OwnPoolStats) { moves.Trims.Note(given, time.Since(start)) })
	}
	return err
}

// tick keeps pages ready while the pool grows, and gives back what is not needed.
func (m *arenas) tick(now time.Time) error {
	if !m.growing.TryLock() { // who has it maps or unmaps, and the next tick will do
		return nil
	}
	defer m.unlockGrowing()
	if m.closed {
		return nil
	}
	m.keepReady(now)
	err := m.shrink(now)
	return cmp.Or(err, m.trimIdle(now))
}

// shrink gives back what is free while more than the share is held, which was lowered then. growing
// is held.
func (m *arenas) shrink(now time.Time) error {
	share := m.share.forPool()
	if m.store.Held() <= share || now.Sub(m.idle.shrunk) < shrinkInterval {
		return nil
	}
	m.idle.shrunk = now
	return m.trimTo(share)
}

// trimIdle is a step of giving back what is not needed. From time to time it looks what of each
// arena's memory was free at every moment since the last look; the steps after that give back
// as much of it, a few pages each. An arena that needs its memory again keeps what is left. growing is held.
func (m *arenas) trimIdle(now time.Time) error {
	if m.idle.after < 0 {
		return nil
	}
	if now.Sub(m.idle.turned) >= m.idle.after {
		m.idle.turned = now
		m.findSurplus()
	}
	if !m.idle.under {
		return nil
	}
	return m.giveBack(m.trimSurplus)
}

// findSurplus computes the pages that were not used since the last look; growing is held.
func (m *arenas) findSurplus() {
	_ = m.store.Reap() // what the driver refused to unmap before
	spare := m.store.Spare()
	m.idle.spare, m.idle.seen = min(spare, m.idle.seen), spare
	m.idle.under = m.idle.spare > 0
	for _, l := range *m.all.Load() {
		l.surplus = l.turn()
		m.idle.under = m.idle.under || l.surplus > 0
	}
}

// trimSurplus gives some surplus back: slabs, then of each arena the oldest first. What the device has not come
// to stays until the next look. growing is held.
func (m *arenas) trimSurplus() error {
	slabs, first := m.unmapSlabs(func(given, _, bytes uint64) bool { return given+bytes <= trimPages*m.page }, (*arena).isSurplus)
	most, queried := trimPages*m.page-slabs, 0
	left := most
	for _, l := range *m.all.Load() {
		if l.surplus < m.page {
			continue
		}
		if queried == trimArenas || left == 0 {
			break
		}
		queried++
		_ = l.look() // what cannot be asked is not known
		for left > 0 {
			r, ok := l.cutOldest(m.store, min(l.surplus, left), m.page)
			if !ok {
				l.surplus = 0
				break
			}
			l.surplus -= r.bytes
			left -= r.bytes
			first = cmp.Or(first, m.store.Unmap(r.ptr, r.bytes))
		}
	}
	spare := min(m.idle.spare, left)
	m.idle.spare -= spare
	left -= spare
	m.idle.under = left == 0 || queried == trimArenas
	give := most - left
	return cmp.Or(first, m.store.Release(m.store.Held()-min(m.store.Held(), give)))
}

// unmapUnused makes free pages spare that the device has come to, and gives slabs of such pages back to it, while more
// than keep bytes are mapped: the slab that has more pages than that comes last. growing is held.
func (m *arenas) unmapUnused(keep uint64) error {
	if _, err := m.unmapSlabs(func(_, _, bytes uint64) bool { return m.store.Mapped() >= keep+bytes }, nil); err != nil {
		return err
	}
	for _, l := range *m.all.Load() {
		for m.store.Mapped() > keep {
			r, ok := l.cutCompleted(m.store, m.wholePages(m.store.Mapped()-keep))
			if !ok {
				break
			}
			if err := m.store.Unmap(r.ptr, r.bytes); err != nil {
				return err
			}
		}
	}
	_, err := m.unmapSlabs(func(_, _, _ uint64) bool { return m.store.Mapped() > keep }, nil)
	return err
}

// unmapSlabs gives slabs back to the device, those of which all pages are free and the device is known to have come to
// them, whichever arenas have them: while want says so of how many bytes it has given, and of a slab, and, if it is not
// nil, may of the bytes that each arena has of it. growing is held.
func (m *arenas) unmapSlabs(want func(given, ptr, bytes uint64) bool, may func(l *arena, bytes uint64) bool) (given uint64, err error) {
	if !m.store.HasSlabs() {
		return 0, nil
	}
	for _, row := range m.completedRows() {
		var slabs []run
		m.store.Pieces(row.ptr, row.bytes, func(ptr, bytes uint64, isSlab bool) {
			if isSlab {
				slabs = append(slabs, run{ptr: ptr, bytes: bytes})
			}
		})
		for _, slab := range slabs {
			if !want(given, slab.ptr, slab.bytes) || !m.cutSlab(slab, may) {
				continue
			}
			given += slab.bytes
			if err := m.store.Unmap(slab.ptr, slab.bytes); err != nil {
				return given, err
			}
		}
	}
	return given, nil
}

// completedRows are the free pages that the device is known to have come to the mark of, in rows.
func (m *arenas) completedRows() (rows []run) {
	var all []run
	for _, l := range *m.all.Load() {
		l.mu.Lock()
		l.fit.Pages(func(ptr, bytes, mark uint64) bool {
			if l.completed(mark) {
				all = append(all, run{ptr: ptr, bytes: bytes})
			}
			return true
		})
		l.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b run) int { return cmp.Compare(a.ptr, b.ptr) })
	for _, r := range all {
		if last := len(rows) - 1; last >= 0 && rows[last].ptr+rows[last].bytes == r.ptr {
			rows[last].bytes += r.bytes
		} else {
			rows = append(rows, r)
		}
	}
	return rows
}

// cutSlab cuts a slab out of the arenas that have it, if each of them may give what it has of it. growing is held.
func (m *arenas) cutSlab(slab run, may func(l *arena, bytes uint64) bool) bool {
	var parts []run
	has := map[*arena]uint64{}
	for at := slab.ptr; at < slab.ptr+slab.bytes; at += m.page {
		l := m.owners[(at-m.base)/m.page].Load()
		if last := len(parts) - 1; last >= 0 && parts[last].from == l {
			parts[last].bytes += m.page
		} else {
			parts = append(parts, run{ptr: at, bytes: m.page, from: l})
		}
		has[l] += m.page
	}
	for l, bytes := range has {
		if may != nil && !may(l, bytes) {
			return false
		}
	}
	for i, r := range parts {
		if _, ok := r.from.cutAt(r.ptr, r.bytes, r.from.completed); !ok { // another took some meanwhile
			for _, r := range parts[:i] {
				m.putBack(r)
			}
			return false
		}
	}
	for l, bytes := range has {
		l.surplus -= min(l.surplus, bytes)
	}
	return true
}

func (m *arenas) addTo(st *core.Stats) {
	var has holdings
	for _, l := range *m.all.Load() {
		l.addTo(&has)
	}
	m.noteHigh(has.requested)
	before := st.Reserved
	m.store.AddTo(st)
	reserved := st.Reserved - before
	st.PoolUsed += has.requested
	st.PoolUsedHigh += m.usedHigh.Load()
	st.Cached += reserved - min(reserved, has.used) // blocks may have been freed, and pages given back, since they were looked at
	m.count(func(moves *core.OwnPoolStats) { st.OwnPool = *moves })
	st.OwnPool.Present, st.OwnPool.Limit, st.OwnPool.Fragmented = true, m.store.Limit(), has.fragmented
	st.OwnPool.Behind = has.behind
}

// drift is what is mapped, less what the arenas have of it, free or taken: zero unless a range was
// lost or is there twice. ok is false while pages are moved. A takeover is a step of its stream's, like
// the allocation that it is made for.
func (m *arenas) drift() (bytes int64, ok bool) {
	if !m.growing.TryLock() {
		return 0, false
	}
	defer m.unlockGrowing()
	if m.apart.Load() > 0 || !m.moving.TryLock() {
		return 0, false
	}
	defer m.moving.Unlock()
	var has uint64
	for _, l := range *m.all.Load() {
		has += l.bytes()
	}
	return int64(m.store.Mapped() - has), true
}

// count reads or changes the counts of moves.
func (m *arenas) count(f func(moves *core.OwnPoolStats)) {
	m.counting.Lock()
	defer m.counting.Unlock()
	f(&m.moves)
}

// close gives everything back that is free and that the device has come to. The rest
// stays mapped for those who have it, until they give it and close is called again, or the
// device's context ends.
func (m *arenas) close() error {
	m.growing.Lock()
	defer m.unlockGrowing()
	for _, l := range *m.all.Load() {
		_ = l.look()
		l.settleCompleted()
	}
	if err := m.unmapUnused(0); err != nil {
		return err
	}
	for _, l := range *m.all.Load() {
		l.forgetQueried()
	}
	m.closed = true
	return m.store.Close()
}
