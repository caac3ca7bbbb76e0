package sim

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// declaration is what a launch of a runtime declares to touch. The stream has it while the
// launch is open, and each operation that was enqueued meanwhile until that has run.
type declaration struct {
	refs atomic.Int32
	id   uint64
	name string

	mu    sync.Mutex
	uses  []driver.Declared
	ended bool
	// strays are accesses that are not declared yet: work that is recorded as a use may have been
	// enqueued before that while the launch is open, so its end decides.
	strays []stray
}

// stray is an access that the launches do not declare of which it may be.
type stray struct {
	launches  []*declaration
	low, high uint64
	kinds     core.Access
	found     Finding
	block     *block
}

var declarations = sync.Pool{New: func() any { return new(declaration) }}

func (l *declaration) release() {
	if l.refs.Add(-1) == 0 {
		l.uses, l.ended = l.uses[:0], false
		declarations.Put(l)
	}
}

// hold keeps a stray until the launch ends; false if it has.
func (l *declaration) hold(s stray) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.strays = append(l.strays, s)
	}
	return !l.ended
}

// end is the end of the launch. What is returned may still be declared by another one.
func (l *declaration) end() (strays []stray) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended, l.strays, strays = true, nil, l.strays
	return strays
}

// BlockIsTracked tells whether launches that are enqueued from now on must declare what they
// do with a block.
func (d *Device) BlockIsTracked(ptr uint64, tracked bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.heapOf(ptr)
	h.Lock()
	defer h.Unlock()
	switch b := h.blockAt(ptr); {
	case b == nil:
	case tracked:
		b.trackedTo.Store(math.MaxUint64)
	default:
		b.trackedTo.Store(d.pushed)
	}
}

// LaunchBegins tells that what is enqueued on s from now on is work of a launch.
func (d *Device) LaunchBegins(h driver.Stream, id uint64, name string, uses []driver.Declared) {
	l := declarations.Get().(*declaration)
	l.id, l.name, l.uses = id, name, append(l.uses, uses...)
	l.refs.Store(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.streams.get(h); s != nil {
		s.launches = append(s.launches, l)
	}
}

// LaunchEnds tells that the launch enqueues no more.
func (d *Device) LaunchEnds(h driver.Stream, id uint64) {
	l := d.takeLaunch(h, id)
	if l == nil {
		return
	}
	for _, s := range l.end() {
		if from, to := undeclared(s.launches, s.low, s.high, s.kinds); from < to {
			d.settle(s)
		}
		for _, of := range s.launches {
			of.release()
		}
	}
	l.release()
}

// takeLaunch takes an open launch off its stream.
func (d *Device) takeLaunch(h driver.Stream, id uint64) *declaration {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.streams.get(h)
	if s == nil {
		return nil
	}
	i := slices.IndexFunc(s.launches, func(l *declaration) bool { return l.id == id })
	if i < 0 {
		return nil
	}
	l := s.launches[i]
	s.launches = slices.Delete(s.launches, i, i+1)
	return l
}

// UseRecorded declares for the launches that are open on s what work of none of them does.
func (d *Device) UseRecorded(h driver.Stream, use driver.Declared) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.streams.get(h)
	if s == nil {
		return
	}
	for _, l := range s.launches {
		l.mu.Lock()
		l.uses = append(l.uses, use)
		l.mu.Unlock()
	}
}

// settle reports a stray, unless a launch is open that may declare it yet.
func (d *Device) settle(s stray) {
	for _, l := range s.launches {
		l.refs.Add(1)
	}
	for _, l := range s.launches {
		if l.hold(s) {
			return
		}
	}
	for _, l := range s.launches {
		l.release()
	}
	d.fileUndeclared(s.found, s.block)
}

// fileUndeclared files an access that was not declared, once for the operation's name, the block,
// and the line that launched it.
func (d *Device) fileUndeclared(f Finding, b *block) {
	d.file(f, b, fmt.Sprintf("%s %s", f.Launch, f.Launched.Caller()))
}

// belong makes an operation one of the launches that are open on its stream. The guard's
// kernels are none of the program's business. Where it may touch what is not declared, the line
// is kept that enqueues it.
func (o *op) belong(s *stream) {
	if len(s.launches) == 0 || o.kind < opMemset || o.kernel != nil && o.kernel.guard {
		return
	}
	for _, l := range s.launches {
		l.refs.Add(1)
		o.launches = append(o.launches, l)
	}
	if o.mayStray() {
		var pcs [32]uintptr
		o.launched = append(o.launched, pcs[:runtime.Callers(2, pcs[:])]...)
	}
}

// trustedRuns is how often in a row a kernel must have touched what its Declare lists, and nothing
// else, to be trusted: to keep a line takes longer than the rest of an operation.
const trustedRuns = 64

// mayStray reports whether an operation touches what its launches do not declare, or may touch
// what nobody knows of yet.
func (o *op) mayStray() bool {
	if k := o.kernel; k != nil && (k.Declare == nil || k.Indirect || k.trusted.Load() < trustedRuns) {
		return true
	}
	return slices.ContainsFunc(o.uses, func(u use) bool {
		from, to, _ := o.stray(u.blk, u.low, u.high, u.access)
		return from < to
	})
}

// trust notes whether a kernel that was run has touched no more than its Declare lists.
func (o *op) trust() {
	switch {
	case o.strayed:
		o.kernel.trusted.Store(0)
	case o.kernel.trusted.Load() < trustedRuns:
		o.kernel.trusted.Add(1)
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

// judgeLaunch compares a touch, which lies in a block, with what is declared.
func (d *Device) judgeLaunch(o *op, b *block, low, high uint64, access core.Access) {
	from, to, access := o.stray(b, low, high, access)
	if from >= to {
		return
	}
	how := "not declared"
	switch at, _ := undeclared(o.launches, from, to, core.ReadWrite); {
	case at > from:
		how, to = "declared to be read only", at
	case declaresPart(o.launches, b):
		how = "outside the part of the block that is declared"
	}
	kinds := core.ReadWrite
	if access.Writes() {
		kinds = core.Write
	}
	d.settle(stray{launches: slices.Clone(o.launches), low: from, high: to, kinds: kinds, block: b, found: o.undeclaredAccess(b, o.accessOf(from, to).party(access), how)})
}

// declaresPart reports whether one of the launches declares anything of a block.
func declaresPart(launches []*declaration, b *block) bool {
	from, to := undeclared(launches, b.ptr, b.end(), core.ReadWrite)
	return from > b.ptr || to < b.end()
}

// undeclared is firstGap of what launches declare.
func undeclared(launches []*declaration, low, high uint64, kinds core.Access) (from, to uint64) {
	for _, l := range launches {
		l.mu.Lock()
		defer l.mu.Unlock()
	}
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
	f := Finding{Kind: Undeclared, First: by, How: how, BlockPtr: b.ptr, BlockBytes: b.bytes, BlockStream: b.stream, Launched: slices.Clone(o.launched)}
	if n := len(o.launches); n > 0 {
		f.LaunchID, f.Launch = o.launches[n-1].id, o.launches[n-1].name // the innermost
	}
	f.Text = f.Describe(handleName)
	return f
}
