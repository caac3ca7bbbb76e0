package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda/internal/fit"
	"github.com/fencepost-gpu/fencepost/cuda/internal/pages"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// growth is how many pages the pool grows by, if it may: so that the small blocks of a
// stream do not come for a page each. A request waits for what it needs; the background maps the rest.
const growth = 8

func (m *arenas) makeRoom(s *stream, req *core.Request, err error) error {
	if !errors.Is(err, errNoRoom) {
		return err
	}
	bytes := req.Bytes
	if bytes > m.page*uint64(len(m.owners)) {
		return m.explain(s, req, nil)
	}
	m.share.needs(m.wholePages(bytes))
	if s.arena.hasPiece(bytes) {
		m.makeSmallRoom(s, req)
		return nil
	}
	if m.growing.TryLock() { // memory of the device comes before that of other streams, if it is to be had anyway
		_ = m.fillAhead()
		m.unlockGrowing()
	}
	if done, err := m.findRoom(s, req); done || err != nil {
		return err
	}
	if done, err := m.lockToGrow(s, req); done || err != nil {
		return err
	}
	g := grower{arenas: m, s: s, req: req, bytes: bytes, hasGrowing: true}
	defer g.unlock()
	return g.makeRoom()
}

// makeSmallRoom gives s a page for small blocks if that costs neither a wait for a stream nor for
// another's growth. Else the small blocks of the stream lie beside others.
func (m *arenas) makeSmallRoom(s *stream, req *core.Request) {
	if m.growing.TryLock() {
		g := grower{arenas: m, s: s, req: req, bytes: req.Bytes, hasGrowing: true}
		defer g.unlock()
		_ = m.fillAhead()
		g.start = time.Now()
		g.lockMoving()
		if s.arena.hasRoom(req.Bytes) || g.moveOrGrow() == nil && s.arena.hasRoom(req.Bytes) {
			return
		}
	}
	s.arena.squeeze()
}

// grower is a request that has growing, and which of the locks it holds.
type grower struct {
	*arenas
	s     *stream
	req   *core.Request
	bytes uint64 // the request's
	// start is when it was begun to look for pages.
	start time.Time
	// alone: no page is in another's hands, as moving is not shared.
	alone                 bool
	hasGrowing, hasMoving bool
	// again is how often it was tried once more.
	again int
}

func (g *grower) unlock() {
	if g.hasMoving {
		g.unlockMoving()
	}
	if g.hasGrowing {
		g.unlockGrowing()
	}
}

func (g *grower) lockMoving() {
	if g.hasMoving = true; g.alone {
		g.moving.Lock()
	} else {
		g.moving.RLock()
	}
}

func (g *grower) unlockMoving() {
	if g.hasMoving = false; g.alone {
		g.moving.Unlock()
	} else {
		g.moving.RUnlock()
	}
}

func (g *grower) makeRoom() error {
	_ = g.fillAhead()
	if done, err := g.findRoom(g.s, g.req); done || err != nil { // pages were mapped meanwhile
		return err
	}
	g.start = time.Now()
	_ = g.look()       // who needs the streams is told
	_ = g.store.Reap() // what the driver refused to unmap before
	g.lockMoving()
	var refused error // by what may be held or by the device, rather than for want of addresses
	for _, alone := range []bool{false, true} {
		if alone {
			g.unlockMoving()
			g.alone = true
			done, err := g.awaitApart()
			g.lockMoving()
			if done || err != nil {
				return err
			}
		}
		if done, err := g.attempt(&refused); done {
			return err
		}
	}
	if pages.IsOverLimit(refused) && g.goBeyond(&refused) {
		return nil
	}
	e := g.explain(g.s, g.req, refused)
	if e.Largest >= g.bytes && g.again < mostLosses { // others have freed it since the last attempt
		g.again++
		g.unlockMoving()
		g.alone = false
		return g.makeRoom()
	}
	return e
}

// attempt tries what needs the driver. It is done if that served the request, or failed for another
// reason than want of memory.
func (g *grower) attempt(refused *error) (done bool, err error) {
	for _, attempt := range []func() error{g.moveOrGrow, g.growBeside} {
		if err = attempt(); err == nil || !errors.Is(err, core.ErrOutOfMemory) {
			return true, err
		}
		if *refused == nil || !errors.Is(err, errNoRow) {
			*refused = err
		}
	}
	return false, err
}

// goBeyond grows beyond the share for a job with a reservation: by what the request lacks, and
// within [share.pieces]. growing and moving are held alone, so that no other request does
// meanwhile.
func (g *grower) goBeyond(refused *error) bool {
	pieces := g.share.pieces(g.req)
	if pieces == 0 {
		return false
	}
	g.share.beyond.Store(pieces)
	defer g.share.beyond.Store(0)
	done, err := g.attempt(refused)
	return done && err == nil
}

// awaitApart waits for the large growths that are under way, unless what others free meanwhile serves the request. None
// begins, since growing is held.
func (g *grower) awaitApart() (done bool, err error) {
	for pause := firstPause; g.apart.Load() > 0 && !done && err == nil; pause = min(2*pause, longestPause) {
		select {
		case <-g.landed:
		case <-time.After(pause):
		}
		done, err = g.findRoom(g.s, g.req)
	}
	return done, err
}

// A request that waits for another's growth looks whether others have freed what it needs after pauses from firstPause to
// longestPause.
const (
	firstPause   = time.Millisecond
	longestPause = 64 * time.Millisecond
)

// lockToGrow locks growing, unless meanwhile what others map or free serves the request.
func (m *arenas) lockToGrow(s *stream, req *core.Request) (done bool, err error) {
	if m.growing.TryLock() {
		return false, nil
	}
	lacks := min(int64(m.wholePages(req.Bytes)/m.page), growth)
	m.ahead.waiting.Add(lacks)
	defer m.ahead.waiting.Add(-lacks)
	for pause := firstPause; !m.growing.TryLock(); pause = min(2*pause, longestPause) {
		select {
		case <-m.unlocked:
		case <-time.After(pause):
		}
		if done, err := m.findRoom(s, req); done || err != nil {
			wake(m.unlocked) // another may wait
			return done, err
		}
	}
	return false, nil
}

// unlockGrowing is how each holder of growing unlocks it.
func (m *arenas) unlockGrowing() {
	m.growing.Unlock()
	wake(m.unlocked)
}

// wake wakes one that waits, or the next one to wait, which then looks in vain.
func wake(waits chan<- struct{}) {
	select {
	case waits <- struct{}{}:
	default:
	}
}

// findRoom gives s what it holds and comes after already, pages that other arenas have, or that are
// mapped ahead.
func (m *arenas) findRoom(s *stream, req *core.Request) (done bool, err error) {
	m.moving.RLock()
	defer m.moving.RUnlock()
	if s.IsGivenUp() {
		return true, nil // its arena may be forgotten: the allocation is refused for that
	}
	m.settleOwn(s)
	if s.arena.hasRoom(req.Bytes) {
		return true, nil // another allocation made it for the same stream, or it is held no more
	}
	_, found, err := m.join(s, req, false)
	return found && s.arena.hasRoom(req.Bytes), err // another may have taken it
}

// settleOwn makes free what the stream holds and comes after already.
func (m *arenas) settleOwn(s *stream) {
	s.arena.settleCompleted()
	s.Lock()
	defer s.Unlock()
	s.arena.settle(s.Behind(), func(_, _ uint64, behind *fence.Frontier) bool { return behind.IsBefore(&s.Stream) })
}

// growBeside maps less than moveOrGrow: what is missing beside pages that s waits for. It
// waits for none unless there is enough.
func (g *grower) growBeside() error {
	_, found, err := g.takeRow(g.s, g.req, true, true, g.fillHole)
	if err == nil && !found {
		return errNoRow
	}
	return err
}

var errNoRow = fmt.Errorf("%w: not enough addresses in a row are free", core.ErrOutOfMemory)

// lacks is how many bytes in a row a stream lacks that has no room for a block: a page for a small
// one.
func (m *arenas) lacks(s *stream, bytes uint64) uint64 {
	if s.arena.fit.IsSmall(bytes) {
		return m.page
	}
	return (bytes + core.DefaultAlign - 1) / core.DefaultAlign * core.DefaultAlign
}

// join makes all pages of a row the stream's. Without a hole the stream may wait for pages;
// with one it does not, and the row says where pages are still missing. Pages that it got
// stay with the stream if others of their row cannot be had: then another row is tried. moving is
// held.
func (m *arenas) join(s *stream, req *core.Request, hole bool) (pages.Row, bool, error) {
	return m.takeRow(s, req, hole, !hole, func(pages.Row) error { return nil })
}

// takeRow looks for a row, fills its hole, and takes its pages. If another stream has taken one of them meanwhile, it
// looks again: other pages of the same arena may be free. After mostLosses, and if the arena's stream captures, it looks
// in the others.
func (m *arenas) takeRow(s *stream, req *core.Request, hole, wait bool, fill func(pages.Row) error) (pages.Row, bool, error) {
	from := slices.Clone(*m.all.Load())
	for losses := 0; ; {
		r, found := pages.BestRow(m.parts(s, from, hole, wait), m.lacks(s, req.Bytes), m.page)
		if !found {
			return nil, false, nil
		}
		if err := fill(r); err != nil {
			return r, false, err
		}
		refused, err := m.takeParts(s, req, from, r)
		switch {
		case errors.Is(err, errTaken) && losses < mostLosses:
			losses++
		case err != nil && !errors.Is(err, errTaken) || refused < 0:
			return r, err == nil, err
		default:
			from[refused] = nil
		}
	}
}

// mostLosses is how often a request looks for a row again because another stream was first.
const mostLosses = 64

// errTaken is that pages are no longer as they were when a row of them was found.
var errTaken = errors.New("another stream took the pages")

// parts is what a row for s may be of: free memory of its own, free pages of the arenas
// that are not nil, holes if there may be any, and pages that it would wait for if it may.
func (m *arenas) parts(s *stream, from []*arena, holes, wait bool) (parts []pages.Part) {
	if holes {
		for ptr, bytes := range m.store.Holes {
			parts = append(parts, pages.Part{Ptr: ptr, Bytes: bytes, Kind: pages.Hole})
		}
	}
	s.Lock()
	defer s.Unlock()
	for i, l := range from {
		switch {
		case l == nil:
		case l != s.arena:
			parts = l.appendPages(parts, pages.Part{From: i}, s, wait)
		case wait:
			parts = l.appendHeld(parts, i)
		}
	}
	return s.arena.insertOwn(parts)
}

// appendPages appends the free pages of an arena that s comes after, or would after a wait. s is locked.
func (l *arena) appendPages(parts []pages.Part, part pages.Part, s *stream, wait bool) []pages.Part {
	l.mu.Lock()
	defer l.mu.Unlock()
	covered := l.covered(s)
	add := func(ptr, bytes, mark uint64, held bool) bool {
		part.Ptr, part.Bytes, part.Kind = ptr, bytes, pages.Covered
		if held || !covered(mark) {
			part.Kind = pages.Waited
		}
		if wait || part.Kind == pages.Covered {
			parts = append(parts, part)
		}
		return true
	}
	if wait {
		l.fit.Rows(add)
	} else {
		l.fit.Pages(func(ptr, bytes, mark uint64) bool { return add(ptr, bytes, mark, false) })
	}
	return parts
}

// appendHeld appends what the arena holds, and what is free beside that, for its own stream.
func (l *arena) appendHeld(parts []pages.Part, from int) []pages.Part {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ptr, bytes := range l.fit.SmallRows {
		parts = append(parts, pages.Part{Ptr: ptr, Bytes: bytes, Kind: pages.Held, From: from})
	}
	for h := range l.fit.Held {
		if h.IsSmall {
			continue
		}
		parts = append(parts, pages.Part{Ptr: h.Ptr, Bytes: h.Bytes, Kind: pages.Held, From: from})
		if h.Below > 0 {
			parts = append(parts, pages.Part{Ptr: h.Ptr - h.Below, Bytes: h.Below})
		}
		if h.Above > 0 {
			parts = append(parts, pages.Part{Ptr: h.Ptr + h.Bytes, Bytes: h.Above})
		}
	}
	return parts
}

// insertOwn puts parts in order, and what is free in the arena beside one of them.
func (l *arena) insertOwn(parts []pages.Part) []pages.Part {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range parts {
		if below, _ := l.fit.Beside(p.Ptr); below > 0 {
			parts = append(parts, pages.Part{Ptr: p.Ptr - below, Bytes: below})
		}
		if _, above := l.fit.Beside(p.End()); above > 0 {
			parts = append(parts, pages.Part{Ptr: p.End(), Bytes: above})
		}
	}
	slices.SortFunc(parts, func(a, b pages.Part) int { return cmp.Compare(a.Ptr, b.Ptr) })
	return slices.Compact(parts) // what is free between two of them is beside both
}

// takeParts takes the pages of a row that other arenas have. It returns the first that does
// not give its pages, with errTaken if they were taken meanwhile and without an error if its stream captures, or -1.
func (m *arenas) takeParts(s *stream, req *core.Request, from []*arena, r pages.Row) (refused int, err error) {
	for _, p := range r {
		given := true
		switch p.Kind {
		case pages.Covered:
			given, err = m.takeOver(s, from[p.From], p)
		case pages.Waited:
			given, err = m.steal(s, req, from[p.From], p)
		case pages.Held:
			given, err = m.await(s, req, p)
		}
		if !given || err != nil {
			return p.From, err
		}
	}
	return -1, nil
}

// takeOver takes pages that s comes after.
func (m *arenas) takeOver(s *stream, l *arena, p pages.Part) (bool, error) {
	s.Lock()
	defer s.Unlock()
	if s.IsGivenUp() || s.Uncaptured() != nil {
		return false, nil // the allocation will be refused for that
	}
	r, ok := l.cutAt(p.Ptr, p.Bytes, l.covered(s))
	if !ok {
		return false, errTaken
	}
	m.count(func(moves *core.OwnPoolStats) { moves.Takeovers.Note(r.bytes, 0) })
	m.own(r, s.arena)
	s.arena.add(r, s.Behind())
	return true, nil
}

// await makes s wait for what its own memory is held behind.
func (m *arenas) await(s *stream, req *core.Request, p pages.Part) (bool, error) {
	s.Lock()
	defer s.Unlock()
	if s.IsGivenUp() || s.Uncaptured() != nil {
		return false, nil // the allocation will be refused for that
	}
	behind := s.arena.held(p.Ptr, p.End())
	defer releaseAll(behind)
	if err := m.comeAfter(s, req, nil, core.UseRecord{}, behind); err != nil {
		return false, err
	}
	s.arena.settle(s.Behind(), func(ptr, bytes uint64, _ *fence.Frontier) bool { return ptr < p.End() && p.Ptr < ptr+bytes })
	return true, nil
}

// comeAfter makes what is enqueued on s from now on come after a point, if it is not nil, and what memory is
// held behind. The newest launch before the point is what the wait for it is said to be for. s is locked.
func (m *arenas) comeAfter(s *stream, req *core.Request, p *fence.Point, newest core.UseRecord, behind []fit.Behind) error {
	plan := plans.Get().(*fence.Plan)
	defer recyclePlan(plan)
	if p != nil {
		plan.AddFinal(&s.Stream, p)
	}
	for f := range frontiersOf(behind) {
		f.AddTo(plan, &s.Stream)
	}
	t := m.times.startReuse(s, req)
	if t == nil {
		return plan.QueueFree(&s.Stream, nil)
	}
	t.followed = s.followedAs(req.Stream)
	t.Mark(s.Handle())
	err := plan.QueueFree(&s.Stream, func(w core.Waited) {
		t.Mark(s.Handle())
		if w.For.Launch == 0 {
			w.Stream, w.Span, w.Launch, w.For = cmp.Or(w.Stream, newest.Stream), newest.Span, newest.Launch, core.WaitRef{Launch: newest.LaunchID}
		}
		t.work.Waits = append(t.work.Waits, oplog.DeviceWait{Stream: w.Stream, For: w.For, Launch: w.Launch, Span: w.Span, Tag: req.Tag, Held: -1})
		m.times.waitsFor(t, w.Stream)
	})
	m.times.reused(t)
	return err
}

// steal takes pages that s then waits for.
func (m *arenas) steal(s *stream, req *core.Request, l *arena, p pages.Part) (bool, error) {
	r, ok := l.cutRow(p.Ptr, p.Bytes)
	if !ok {
		return false, errTaken
	}
	stolen, err := m.stealRun(s, req, r)
	if stolen {
		releaseAll(r.behind)
	} else {
		m.putBack(r)
	}
	return stolen, err
}

// stealRun makes s wait for everything on the stream that the run was freed on, if it does not come after
// the run's mark, and for what the run was held behind. It does not if either of them captures.
func (m *arenas) stealRun(s *stream, req *core.Request, r run) (bool, error) {
	start := time.Now()
	var behind *fence.Point
	var newest core.UseRecord
	if !r.isBefore(s) {
		r.after.Lock()
		newest = r.after.Newest()
		p, err := r.after.FinalOrRecord(core.DefaultStream)
		r.after.Unlock()
		if err != nil {
			return false, unlessCapturing(err)
		}
		defer p.Release()
		behind = p
	}
	s.Lock()
	defer s.Unlock()
	if s.IsGivenUp() || s.Uncaptured() != nil {
		return false, nil // the allocation will be refused for that
	}
	if err := m.comeAfter(s, req, behind, newest, r.behind); err != nil {
		return false, err
	}
	m.own(r, s.arena)
	s.arena.add(r, s.Behind())
	m.count(func(moves *core.OwnPoolStats) { moves.Steals.Note(r.bytes, time.Since(start)) })
	return true, nil
}

// isBefore reports whether s comes after the mark of a run.
func (r run) isBefore(s *stream) bool {
	s.Lock()
	defer s.Unlock()
	return s.Covers(&r.after.Stream, r.mark)
}

// putBack undoes a cut.
func (m *arenas) putBack(r run) {
	m.own(r, r.from)
	r.from.putBack(r)
}

// cutAt cuts some pages out of the arena, if they are free and may yields true for their mark.
// It is called with the arena locked.
func (l *arena) cutAt(ptr, bytes uint64, may func(mark uint64) bool) (run, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return run{ptr: ptr, bytes: bytes, from: l, after: l.stream}, l.fit.CutAt(ptr, bytes, may)
}

// cutRow is cutAt for pages that a stream will wait for, and that may be held.
func (l *arena) cutRow(ptr, bytes uint64) (r run, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r = run{ptr: ptr, bytes: bytes, from: l, after: l.stream}
	r.behind, r.mark, ok = l.fit.CutRow(ptr, bytes)
	return r, ok
}

// moveOrGrow maps spare pages where free memory of s lacks the fewest, and takes from the
// device what is missing.
func (g *grower) moveOrGrow() error {
	r, found, err := g.join(g.s, g.req, true)
	if err != nil {
		return err
	}
	if !found {
		return errNoRow
	}
	if hole := holeOf(r); hole >= 0 && !g.alone && r[hole].Bytes >= apartPages*g.page {
		return g.growApart(r, r[hole])
	}
	return g.fillHole(r)
}

// holeOf is which part of a row is a hole, -1 if none is: if the look has found that the device had come to
// what was missing.
func holeOf(r pages.Row) int {
	return slices.IndexFunc(r, func(p pages.Part) bool { return p.Kind == pages.Hole })
}

// apartPages is from how many pages on a growth is large: no other waits while the driver maps them.
const apartPages = 16

// growApart is fillHole for a large hole. The driver maps it while neither growing nor moving is held, nor are
// they afterwards if that goes well.
func (g *grower) growApart(r pages.Row, hole pages.Part) error {
	g.unlockMoving()
	defer func() {
		if g.hasGrowing {
			g.lockMoving()
		}
	}()
	if err := g.collect(hole.Bytes, r[0].Ptr, r[len(r)-1].End()); err != nil {
		return err
	}
	fill, err := g.store.Reserve(hole.Ptr, hole.Bytes)
	if err != nil {
		return err
	}
	if err = g.fly(hole, fill); err != nil {
		g.growing.Lock()
		g.hasGrowing = true
	}
	return err
}

// fly calls the driver for a large growth.
func (g *grower) fly(hole pages.Part, fill func() (uint64, error)) error {
	g.apart.Add(1)
	defer func() {
		g.apart.Add(-1)
		wake(g.landed)
	}()
	g.hasGrowing = false
	g.unlockGrowing()
	return g.enter(g.s.arena, hole.Ptr, hole.Bytes, time.Since(g.start), fill)
}

// fillHole maps pages in the hole of a row, if it has one. Others may move pages while the driver works, unless it
// is done alone: before a request is refused no page is in another's hands.
func (g *grower) fillHole(r pages.Row) error {
	hole := holeOf(r)
	if hole < 0 {
		return nil
	}
	if !g.alone {
		g.unlockMoving()
		defer g.lockMoving()
	}
	ptr, bytes := r[hole].Ptr, r[hole].Bytes
	if err := g.collect(bytes, r[0].Ptr, r[len(r)-1].End()); err != nil {
		return err
	}
	collected := time.Since(g.start)
	most := bytes
	if g.store.Spare() < bytes && g.share.beyond.Load() == 0 {
		most = max(bytes, min(g.ahead.growBy(g.start, bytes/g.page, g.store.Held()/g.page)*g.page, g.room(ptr)))
	}
	if g.ahead.start != nil {
		err := g.fill(g.s.arena, ptr, bytes, collected)
		if err == nil && most > bytes {
			g.mapAhead(g.s.arena, ptr+bytes, most-bytes)
		}
		return err
	}
	err := g.fill(g.s.arena, ptr, most, collected)
	if errors.Is(err, core.ErrOutOfMemory) && most > bytes {
		err = g.fill(g.s.arena, ptr, bytes, collected)
	}
	return err
}

// fill maps pages in a hole for an arena: spare ones, which it took so long to collect, and what is
// missing from the device.
func (m *arenas) fill(l *arena, ptr, bytes uint64, collected time.Duration) error {
	return m.enter(l, ptr, bytes, collected, func() (uint64, error) { return m.store.Map(ptr, bytes) })
}

// enter gives an arena the pages that are mapped by a call, which says how many bytes of them the device was asked for.
// They were never used, or the device has passed the work that used them: any stream may have them.
func (m *arenas) enter(l *arena, ptr, bytes uint64, collected time.Duration, fill func() (created uint64, err error)) error {
	start := time.Now()
	grown, err := fill()
	if err != nil {
		return err
	}
	r, took := run{ptr: ptr, bytes: bytes}, time.Since(start)
	m.own(r, l)
	l.add(r, 0)
	m.count(func(moves *core.OwnPoolStats) {
		if grown > 0 {
			moves.Growths.Note(grown, took)
			took = 0
		}
		if moved := bytes - grown; moved > 0 {
			moves.Remaps.Note(moved, took+collected)
		}
	})
	return nil
}

// room is how far it is from a place in a hole to the hole's end.
func (m *arenas) room(at uint64) uint64 {
	for ptr, bytes := range m.store.Holes {
		if ptr <= at && at < ptr+bytes {
			return ptr + bytes - at
		}
	}
	return 0
}

// collect makes free pages spare that the device has come to, until so many bytes are spare or
// there are no more, and none with an address in a range that is kept. What is missing then slabs make room for.
func (m *arenas) collect(bytes, from, to uint64) error {
	from, to = from/m.page*m.page, m.wholePages(to)
	for _, l := range *m.all.Load() {
		spare := m.store.Spare()
		if spare >= bytes {
			break
		}
		runs := l.cutIdle(m.store, bytes-spare, from, to)
		for i, r := range runs {
			if err := m.store.Unmap(r.ptr, r.bytes); err != nil {
				for _, r := range runs[i+1:] {
					m.putBack(r)
				}
				return err
			}
		}
	}
	if m.store.Spare() >= bytes {
		return nil
	}
	_, err := m.unmapSlabs(func(given, ptr, n uint64) bool {
		return m.store.Spare()+given < bytes && (ptr+n <= from || to <= ptr)
	}, nil)
	return err
}

// cutIdle cuts free single pages that the device is known to have come to the mark of: so many bytes, if
// there are as many beside those of a range, and of the shortest stretches first.
func (l *arena) cutIdle(store *pages.Store, bytes, from, to uint64) (runs []run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	add := func(ptr, end uint64) {
		if ptr < end {
			runs = append(runs, run{ptr: ptr, bytes: end - ptr, from: l})
		}
	}
	l.singles(store, func(ptr, bytes, _ uint64) {
		add(ptr, min(ptr+bytes, from))
		add(max(ptr, to), ptr+bytes)
	})
	slices.SortFunc(runs, func(a, b run) int { return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.ptr, b.ptr)) })
	for i := range runs {
		if bytes == 0 {
			return runs[:i]
		}
		r := &runs[i]
		r.bytes = min(r.bytes, bytes)
		l.fit.CutAt(r.ptr, r.bytes, nil)
		bytes -= r.bytes
	}
	return runs
}

func (m *arenas) wholePages(bytes uint64) uint64 {
	page := m.page
	return (bytes + page - 1) / page * page
}
