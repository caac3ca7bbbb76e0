package sim

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// declaration is what a launch of a runtime declares to touch. The stream has it while the
// launch is open, and each operation that was enqueued meanwhile until that has run.
type declaration struct {
	refs   atomic.Int32
	launch core.UseRecord
	uses   []driver.Declared
}

var declarations = sync.Pool{New: func() any { return new(declaration) }}

func (l *declaration) release() {
	if l.refs.Add(-1) == 0 {
		l.uses = l.uses[:0]
		declarations.Put(l)
	}
}

// strays are accesses that no launch declares: work may be recorded as a use after it has run.
type strays struct {
	mu sync.Mutex
	// recorded says that the program records uses: it may do so later than it waits for the work.
	recorded bool
	list     []stray
}

type stray struct {
	number uint64 // the operation's
	seq    uint64 // on its stream
	slot   int
	found  Finding
	block  *block
}

// straysKept is how many accesses wait to be recorded: the oldest is reported then.
const straysKept = 64

// hold keeps a stray, unless its use was recorded, and returns one to report: the oldest of too
// many, or the stray itself if its block takes no more uses.
func (w *strays) hold(s stray) (late stray, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case s.number <= s.block.recorded[s.found.First.Stream]:
		return stray{}, false
	case s.block.trackedTo.Load() != math.MaxUint64:
		return s, true
	}
	w.list = append(w.list, s)
	if len(w.list) <= straysKept {
		return stray{}, false
	}
	late, w.list = w.list[0], slices.Delete(w.list, 0, 1)
	return late, true
}

// isRecorded reports whether the operation is a recorded use of the block.
func (w *strays) isRecorded(o *op, b *block) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return o.number <= b.recorded[o.stream]
}

// mayBeRecorded reports whether the program records uses, so that what is not declared may be yet.
func (w *strays) mayBeRecorded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.recorded
}

// take removes what is chosen.
func (w *strays) take(chosen func(stray) bool) (taken []stray) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = slices.DeleteFunc(w.list, func(s stray) bool {
		if chosen(s) {
			taken = append(taken, s)
			return true
		}
		return false
	})
	return taken
}

// seenDone takes what the host has seen to be done. A program that records uses may do so yet.
func (w *strays) seenDone(clocks []stamp) []stray {
	return w.take(func(s stray) bool {
		return !w.recorded && slices.ContainsFunc(clocks, func(c stamp) bool { return c.after(s.slot, s.seq) })
	})
}

// BlockIsOwned tells what of a block the program has: the bytes at owned, or nothing if bytes is 0.
// Launches that are enqueued from now on must declare what they do there.
func (d *Device) BlockIsOwned(ptr, owned, bytes uint64) {
	d.tell(ptr, func(b *block) {
		if owned != b.ptr || bytes != b.bytes {
			b.part.Store(&part{max(owned, b.ptr), min(owned+bytes, b.end())})
		}
		b.told.Store(true)
		b.withheld.Store(bytes == 0)
		b.trackedTo.Store(math.MaxUint64)
		if bytes == 0 {
			b.trackedTo.Store(d.pushed)
		}
	})
}

// BlockIsWithheld tells that the owner of a block has given it back, and a layer keeps it.
func (d *Device) BlockIsWithheld(ptr uint64) {
	b := d.tell(ptr, func(b *block) {
		if !b.withheld.Load() {
			b.trackedTo.Store(d.pushed)
			b.withheld.Store(true)
		}
	})
	if b != nil {
		d.fileStrays(d.strays.take(func(s stray) bool { return s.block == b }))
	}
}

// tell sets what is told of the live block that holds ptr, and returns it; nil if there is none.
func (d *Device) tell(ptr uint64, set func(*block)) *block {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.heapOf(ptr)
	h.Lock()
	defer h.Unlock()
	b := h.blockAt(ptr)
	if b != nil {
		set(b)
	}
	return b
}

// LaunchBegins tells that what is enqueued on s from now on is work of a launch.
func (d *Device) LaunchBegins(h driver.Stream, launch core.UseRecord, uses []driver.Declared) {
	l := declarations.Get().(*declaration)
	l.launch, l.uses = launch, append(l.uses, uses...)
	l.launch.Launch = names.Bound(launch.Launch)
	l.refs.Store(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.streams.get(h); s != nil {
		s.launches = append(s.launches, l)
	}
}

// LaunchEnds tells that the launch enqueues no more.
func (d *Device) LaunchEnds(h driver.Stream, id uint64) {
	if l := d.takeLaunch(h, id); l != nil {
		l.release()
	}
}

// takeLaunch takes an open launch off its stream.
func (d *Device) takeLaunch(h driver.Stream, id uint64) *declaration {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.streams.get(h)
	if s == nil {
		return nil
	}
	i := slices.IndexFunc(s.launches, func(l *declaration) bool { return l.launch.LaunchID == id })
	if i < 0 {
		return nil
	}
	l := s.launches[i]
	s.launches = slices.Delete(s.launches, i, i+1)
	return l
}

// UseRecorded declares what was enqueued on s so far and uses a block, and is work of no launch.
func (d *Device) UseRecorded(h driver.Stream, use driver.Declared) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.heapOf(use.Ptr)
	m.Lock()
	defer m.Unlock()
	b := m.blockAt(use.Ptr)
	if b == nil {
		return
	}
	d.strays.mu.Lock()
	defer d.strays.mu.Unlock()
	if b.recorded == nil {
		b.recorded = make(map[driver.Stream]uint64)
	}
	d.strays.recorded, b.recorded[h] = true, d.pushed
	d.strays.list = slices.DeleteFunc(d.strays.list, func(s stray) bool { return s.block == b && s.found.First.Stream == h })
}

// fileStrays reports accesses that nothing can declare any more.
func (d *Device) fileStrays(all []stray) {
	for _, s := range all {
		d.fileUndeclared(s.found, s.block)
	}
}

// fileUndeclared files an access that was not declared, once for the operation's name, the block,
// and the line that launched it.
func (d *Device) fileUndeclared(f Finding, b *block) {
	w := f.First.Work
	d.file(f, b, w.launch().Launch+" "+w.Stack().Caller())
}

// Work is where an operation of the program's comes from.
type Work struct {
	// Launch is the launch of a runtime that it is work of, the innermost if several are open on the
	// stream; its LaunchID is 0 of work that no runtime was told of.
	Launch core.UseRecord
	pcs    [32]uintptr
	depth  int
}

// Stack is where the operation was enqueued, empty if that is not known.
func (w *Work) Stack() core.Stack {
	if w == nil {
		return nil
	}
	return core.Stack(w.pcs[:w.depth])
}

// launch is the zero record if nothing is known.
func (w *Work) launch() (u core.UseRecord) {
	if w != nil {
		u = w.Launch
	}
	return u
}

// belong makes an operation one of the launches that are open on its stream, and keeps where it is
// enqueued. The guard's kernels are none of the program's business.
func (o *op) belong(s *stream) {
	if o.kind < opMemset || o.isGuards() {
		return
	}
	o.work = new(Work)
	for _, l := range s.launches {
		l.refs.Add(1)
		o.launches = append(o.launches, l)
		o.work.Launch = l.launch
	}
	o.work.depth = runtime.Callers(2, o.work.pcs[:])
	if o.source != nil {
		o.source.work = o.work
	}
}

// stray is the first part of [low, high), which lies in block b, that the launches do not declare
// of which the operation may be, and how it is touched. Work of none is judged by its order alone.
// That a launch reads what it declares to write alone costs no order.
func (o *op) stray(b *block, low, high uint64, access core.Access) (from, to uint64, as core.Access) {
	if b == nil || o.number > b.trackedTo.Load() || len(o.launches) == 0 {
		return 0, 0, access
	}
	kinds := core.ReadWrite
	if access.Writes() {
		kinds, access = core.Write, core.Write
	}
	from, to = undeclared(o.launches, low, high, kinds)
	return from, to, access
}

// judgeLaunch tells of a part of a touch that its launches do not declare: see [op.stray].
func (d *Device) judgeLaunch(o *op, b *block, from, to uint64, access core.Access, how string) {
	if from >= to {
		return
	}
	found := o.undeclaredAccess(b, o.accessOf(from, to).party(access), how)
	if s, ok := d.strays.hold(stray{number: o.number, seq: o.now.seq, slot: o.now.slot, found: found, block: b}); ok {
		d.fileUndeclared(s.found, s.block)
	}
}

// misdeclared says what is wrong with a part of a touch that [op.stray] found, and up to where.
func (o *op) misdeclared(b *block, from, to uint64) (how string, end uint64) {
	switch at, _ := undeclared(o.launches, from, to, core.ReadWrite); {
	case from >= to:
		return "", to
	case at > from:
		return "declared to be read only", min(at, to)
	case declaresPart(o.launches, b):
		return "outside the part of the block that is declared", to
	}
	return "not declared", to
}

// declaresPart reports whether one of the launches declares anything of a block.
func declaresPart(launches []*declaration, b *block) bool {
	from, to := undeclared(launches, b.low(), b.high(), core.ReadWrite)
	return from > b.low() || to < b.high()
}

// undeclared is firstGap of what launches declare.
func undeclared(launches []*declaration, low, high uint64, kinds core.Access) (from, to uint64) {
	for covered := true; covered; {
		covered = false
		for _, l := range launches {
			for _, u := range l.uses {
				if u.Access&kinds != 0 && u.Ptr <= low && low < u.Ptr+u.Bytes {
					low, covered = u.Ptr+u.Bytes, true
				}
			}
		}
	}
	for _, l := range launches {
		for _, u := range l.uses {
			if u.Access&kinds != 0 && u.Ptr > low {
				high = min(high, u.Ptr)
			}
		}
	}
	return low, high
}

// undeclaredAccess is the finding of an access that was not declared.
func (o *op) undeclaredAccess(b *block, by Party, how string) Finding {
	by.How = how
	f := Finding{Kind: Undeclared, First: by}
	f.concerns(b)
	f.Text = f.Describe(handleName)
	return f
}
