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
	uses []driver.Declared
}

var declarations = sync.Pool{New: func() any { return new(declaration) }}

func (l *declaration) release() {
	if l.refs.Add(-1) == 0 {
		l.uses = l.uses[:0]
		declarations.Put(l)
	}
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
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.streams.get(h)
	if s == nil {
		return
	}
	for i, l := range s.launches {
		if l.id == id {
			s.launches = slices.Delete(s.launches, i, i+1)
			l.release()
			return
		}
	}
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
	from, to = o.undeclared(low, high, kinds)
	return from, to, access
}

// judgeLaunch compares a touch, which lies in a block, with what is declared.
func (d *Device) judgeLaunch(o *op, b *block, low, high uint64, access core.Access) {
	from, to, access := o.stray(b, low, high, access)
	if from >= to {
		return
	}
	how := "not declared"
	switch at, _ := o.undeclared(from, to, core.ReadWrite); {
	case at > from:
		how, to = "declared to be read only", at
	case slices.ContainsFunc(o.launches, func(l *declaration) bool {
		return slices.ContainsFunc(l.uses, func(u driver.Declared) bool { return u.Ptr < b.end() && b.ptr < u.Ptr+u.Bytes })
	}):
		how = "outside the part of the block that is declared"
	}
	d.reportUndeclared(o, b, o.accessOf(from, to).party(access), how)
}

// undeclared is firstGap of what the launches of an operation declare.
func (o *op) undeclared(low, high uint64, kinds core.Access) (from, to uint64) {
	for covered := true; covered; {
		covered = false
		for _, l := range o.launches {
			for _, u := range l.uses {
				if u.Access&kinds != 0 && u.Ptr <= low && low < u.Ptr+u.Bytes {
					low, covered = u.Ptr+u.Bytes, true
				}
			}
		}
	}
	for _, l := range o.launches {
		for _, u := range l.uses {
			if u.Access&kinds != 0 && u.Ptr > low {
				high = min(high, u.Ptr)
			}
		}
	}
	return low, high
}

// reportUndeclared files an access that was not declared, once for the operation's name, the
// block, and the line that launched it.
func (d *Device) reportUndeclared(o *op, b *block, by Party, how string) {
	f := Finding{Kind: Undeclared, First: by, How: how, BlockPtr: b.ptr, BlockBytes: b.bytes, BlockStream: b.stream}
	line := ""
	if n := len(o.launches); n > 0 {
		l := o.launches[n-1] // the innermost
		f.LaunchID, f.Launch, f.Launched = l.id, l.name, slices.Clone(o.launched)
		line = fmt.Sprintf("%s %s", l.name, f.Launched.Caller())
	}
	f.Text = f.Describe(handleName)
	d.file(f, b, line)
}
