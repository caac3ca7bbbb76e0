package path

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
)

// Step is an ordinary operation under way. The lane is locked while the layers see it.
type Step struct {
	Lane   *Lane
	Record *Record
	// Request is what is asked of an allocation: only its sizes, tag, stream, span and account can
	// be set.
	Request core.Request
	// ID is the block to be freed.
	ID core.BlockID
	// Block is the one that was allocated, or what became of the one that was freed.
	Block core.Block
	// Engine is what the backend knows a block by that is to be freed.
	Engine any
	// Began is when the caller came. Took is how long it waited, 0 if the operation is not Timed.
	Began monotime.Instant
	Took  time.Duration
	Timed bool
	// then is called when the lane is not locked any more, before the caller gets the block.
	then func(core.Block)
}

// Then has a function called with the block when the lane is not locked any more, before the caller
// gets it and after those that were given earlier. nil is none.
func (s *Step) Then(f func(core.Block)) {
	if f == nil {
		return
	}
	if first := s.then; first != nil {
		s.then = func(b core.Block) {
			first(b)
			f(b)
		}
		return
	}
	s.then = f
}

// Keeping is what a backend does whose streams keep blocks. The lane is locked in each call.
type Keeping interface {
	Lanes
	// Expects is that of [Ordinary].
	Expects(*Lane) int64
	// Revive makes a kept block the one of a request: s.Block and s.Record. It reports false if it
	// keeps none.
	Revive(*Step) bool
	// MayKeep reports whether the block to be freed can be kept. If so it is locked until Keep or
	// Leave.
	MayKeep(*Step) bool
	// Keep frees the block, and has the lane owe that ([Lane.Owe]). Leave leaves it as it was.
	Keep(*Step)
	Leave(*Step)
	// Settle lets go of all kept blocks of the lane: it calls [Lane.LetGo] for each.
	Settle(*Lane)
}

// Ordinary is a layer's share of ordinary operations. Each function may be nil. All are called with
// the lane locked. They decide nothing, take no lock that another goroutine may wait for the lane
// with, and call no user code.
type Ordinary struct {
	// Expects returns how many bytes may be allocated in the lane before the layer has to see an
	// allocation. 0 says that it has to see each operation.
	Expects func(*Lane) int64
	// Passed tells how many bytes were allocated without the layer's look.
	Passed func(*Lane, int64)
	// LeavesAlone reports whether the layer has nothing to do with a block of that size. So many
	// bytes were allocated since Passed.
	LeavesAlone func(l *Lane, bytes, since int64, now monotime.Instant) bool
	// MayKeep reports whether the books of the layer allow that the block is kept.
	MayKeep func(*Step) bool
	// Retire marks the block as freed, so that no other free of it succeeds. It reports false if
	// that is done already, or is not its affair alone. One layer of a stack may have it.
	Retire func(*Step) bool
	// Allocated and Freed write down what happened.
	Allocated, Freed func(*Step)
	// LetGo undoes what the layer left standing of a block that was kept.
	LetGo func(*Record)
}

// ordinaries are the shares of all layers over a backend, by what they are asked. They are replaced
// and never changed.
type ordinaries struct {
	top         *Path
	expects     []func(*Lane) int64
	passed      []func(*Lane, int64)
	leavesAlone []func(*Lane, int64, int64, monotime.Instant) bool
	mayKeep     []func(*Step) bool
	retire      func(*Step) bool
	allocated   []func(*Step)
	freed       []func(*Step)
	letGo       []func(*Record)
}

// ordinary is what a lane knows of its ordinary operations. The lane's lock guards it.
type ordinary struct {
	step Step
	// by are the layers' shares for which the rest is true.
	by *ordinaries
	// owes is set from when the backend keeps the first block until the lane is settled.
	owes  bool
	epoch uint32
	// until is how many bytes more may be allocated before a layer looks, passed how many were
	// since the last look.
	until, passed int64
	// changed: an operation that was not ordinary has changed what the layers expect.
	changed bool
	// refused counts down the operations until layers that had to see each are asked again.
	refused uint8
}

// shares are a backend's shares of all layers.
type shares struct {
	keeping Keeping // nil if the backend keeps nothing
	epoch   atomic.Uint32
	all     atomic.Pointer[ordinaries] // nil if some layer has no share
}

// add adds the share of a layer whose path lies over that of the one before.
func (s *shares) add(top *Path, share *Ordinary) {
	for {
		old := s.all.Load()
		if s.all.CompareAndSwap(old, old.with(top, share)) {
			return
		}
	}
}

// with adds the share of a layer, whose path is top. nil is a layer that has none.
func (o *ordinaries) with(top *Path, share *Ordinary) *ordinaries {
	if o == nil || o.top != top.Below || share == nil || o.retire != nil && share.Retire != nil {
		return nil
	}
	next := *o
	next.top = top
	next.expects = also(o.expects, share.Expects, share.Expects != nil)
	next.passed = also(o.passed, share.Passed, share.Passed != nil)
	next.leavesAlone = also(o.leavesAlone, share.LeavesAlone, share.LeavesAlone != nil)
	next.mayKeep = also(o.mayKeep, share.MayKeep, share.MayKeep != nil)
	next.allocated = also(o.allocated, share.Allocated, share.Allocated != nil)
	next.freed = also(o.freed, share.Freed, share.Freed != nil)
	next.letGo = also(o.letGo, share.LetGo, share.LetGo != nil)
	if share.Retire != nil {
		next.retire = share.Retire
	}
	return &next
}

// Altered tells that the layer may expect something else from now on. A layer calls it when its
// rules have changed. An operation that begins later goes by the new ones. It does not block.
func (p *Path) Altered() { p.lanes.shares.epoch.Add(1) }

// LockToKeep is Lock for a backend that keeps a block later than [Keeping].Keep: it settles
// nothing.
func (l *Lane) LockToKeep() { l.mu.Lock() }

// SettleNow settles the lane for an operation that holds its lock and lacks what kept blocks have.
// It reports whether there was anything to settle.
func (l *Lane) SettleNow() bool {
	o := &l.ordinary
	if !o.owes {
		return false
	}
	l.pass()
	o.by.top.lanes.shares.keeping.Settle(l)
	o.owes = false
	return true
}

// Owe has the lane, which is locked and in which the backend keeps a block, settled by the next
// Lock.
func (l *Lane) Owe() { l.ordinary.owes = true }

// LetGo tells the layers that a block is kept no more and is free. Its lane is locked.
func (l *Lane) LetGo(rec *Record) {
	for _, letGo := range l.ordinary.by.letGo {
		letGo(rec)
	}
}

// pass tells the layers how many bytes were allocated without them.
func (l *Lane) pass() {
	o := &l.ordinary
	if o.passed == 0 {
		return
	}
	n := o.passed
	o.passed = 0
	for _, passed := range o.by.passed {
		passed(l, n)
	}
}

// notOrdinary prepares a lane, which is locked, for an operation that goes from layer to layer.
func (l *Lane) notOrdinary(bytes uint64) {
	l.pass()
	o := &l.ordinary
	o.changed = true
	o.until = max(0, o.until-int64(min(bytes, math.MaxInt64)))
}

// expects reports whether all layers expect an ordinary operation that allocates so many bytes. The
// lane is locked.
func (p *Path) expects(l *Lane, bytes int64) *ordinaries {
	all, o := p.lanes.shares.all.Load(), &l.ordinary
	if all == nil || all.top != p {
		return nil
	}
	epoch := p.lanes.shares.epoch.Load()
	if o.by == all && o.epoch == epoch {
		if o.until >= bytes {
			return all
		}
		if o.until == 0 && o.refused > 0 {
			o.refused--
			return nil
		}
		if !o.changed {
			return nil
		}
	}
	if o.by != all {
		l.SettleNow()
		o.by = all
	}
	l.pass()
	o.epoch, o.changed, o.until = epoch, false, p.lanes.shares.keeping.Expects(l)
	for _, expects := range all.expects {
		o.until = min(o.until, expects(l))
	}
	if o.until == 0 {
		o.refused = timedEach
	}
	if o.until < bytes {
		return nil
	}
	return all
}

// allocateOrdinary serves an allocation in a lane, which is locked, if it is ordinary. It unlocks
// the lane if so.
func (p *Path) allocateOrdinary(l *Lane, began monotime.Instant, req *core.Request, b *core.Block) bool {
	o := &l.ordinary
	if !o.owes || !o.step.asks(req) {
		return false
	}
	all := p.expects(l, int64(req.Bytes))
	if all == nil || !o.owes {
		return false
	}
	for _, leavesAlone := range all.leavesAlone {
		if !leavesAlone(l, int64(req.Bytes), o.passed, began) {
			return false
		}
	}
	s := &o.step
	s.Lane, s.Began, s.Request.Account = l, began, req.Account
	revived := p.lanes.shares.keeping.Revive(s)
	s.Request.Account = nil // the lane lives longer than the job
	if !revived {
		return false
	}
	o.until -= int64(req.Bytes)
	o.passed += int64(req.Bytes)
	s.time(&l.begun[0])
	for _, allocated := range all.allocated {
		allocated(s)
	}
	l.end(s, b)
	return true
}

// asks makes the step's request what a caller asks for, if that may be ordinary.
func (s *Step) asks(req *core.Request) bool {
	if req.Isolated || req.Withheld || req.Claim != 0 || req.Before != 0 ||
		req.Bytes > math.MaxInt64 {
		return false
	}
	r := &s.Request
	if r.Tag != req.Tag || r.Tag == "" { // else it is known to be a tag as it should be
		r.Tag = req.Tag.OrUntagged()
	}
	r.Bytes, r.Requested, r.Align = req.Bytes, req.Requested, req.Align
	r.Stream, r.Span = req.Stream, req.Span
	if r.Requested == 0 {
		r.Requested = r.Bytes
	}
	return r.Bytes > 0 && r.Requested <= r.Bytes && r.Align&(r.Align-1) == 0 && r.Align <= core.DefaultAlign
}

// freeOrdinary frees a block of a lane, which is locked, if that is ordinary. It unlocks the lane
// if so.
func (p *Path) freeOrdinary(l *Lane, began monotime.Instant, id *core.BlockID, b *core.Block) bool {
	if l.parts[BackendPart] == nil {
		return false
	}
	all := p.expects(l, 1)
	if all == nil {
		return false
	}
	keeping, s := p.lanes.shares.keeping, &l.ordinary.step
	rec, engine := keeping.Record(l, id.Generation)
	if engine == nil {
		return false
	}
	s.Lane, s.Record, s.Engine, s.ID, s.Began = l, rec, engine, *id, began
	for _, mayKeep := range all.mayKeep {
		if !mayKeep(s) {
			return false
		}
	}
	if !keeping.MayKeep(s) {
		return false
	}
	if all.retire != nil && !all.retire(s) {
		keeping.Leave(s)
		return false
	}
	keeping.Keep(s)
	s.time(&l.begun[1])
	for _, freed := range all.freed {
		freed(s)
	}
	l.end(s, b)
	return true
}

// time reads the clock again for some operations of a lane, which begun counts.
func (s *Step) time(begun *uint8) {
	s.Timed, s.Took = *begun%timedEach == 0, 0
	*begun++
	if s.Timed {
		s.Took = monotime.Now().Since(s.Began)
	}
}

// end unlocks the lane of a step that is done.
func (l *Lane) end(s *Step, b *core.Block) {
	*b = s.Block
	then := s.then
	if then != nil {
		s.then = nil
	}
	l.mu.Unlock()
	if then != nil {
		then(*b)
	}
}

// also adds a function to a list, if there is one.
func also[F any](to []F, f F, given bool) []F {
	if !given {
		return to
	}
	return append(to[:len(to):len(to)], f)
}
