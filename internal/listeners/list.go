// Package listeners is the list that backends and layers keep of who hears of released
// blocks. It is read on every release and changes when something is built, so it is
// replaced and never changed: telling takes no lock, and a listener may add another.
package listeners

import (
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/usercode"
)

// List is a list of listeners. The zero value is empty and ready for use.
type List struct {
	all, others atomic.Pointer[[]listener]
}

// listener hears of a block by one of the two: a block is a large value, and each call in between
// copies it.
type listener struct {
	plain func(core.Block)
	layer func(*path.Record, core.Block)
}

func (l *listener) hear(rec *path.Record, b core.Block) {
	if l.layer != nil {
		l.layer(rec, b)
		return
	}
	l.plain(b)
}

// Add adds a listener; nil is ignored. It hears of the blocks that are released
// after Add has returned.
func (l *List) Add(to core.Listener) {
	switch to := to.(type) {
	case nil:
	case path.Listener:
		add(&l.all, listener{layer: to.Hear})
	case Func:
		l.add(listener{plain: to})
	default:
		l.add(listener{plain: func(b core.Block) {
			usercode.Call("a listener of released blocks", func() { to.Released(b) })
		}})
	}
}

func (l *List) add(plain listener) {
	add(&l.others, plain)
	add(&l.all, plain)
}

func add(to *atomic.Pointer[[]listener], added listener) {
	for {
		old := to.Load()
		var next []listener
		if old != nil {
			next = append(next, *old...)
		}
		next = append(next, added)
		if to.CompareAndSwap(old, &next) {
			return
		}
	}
}

// Released tells all of them, in the order in which they were added. rec is the block's record, nil
// where the teller has none.
func (l *List) Released(rec *path.Record, b core.Block) {
	if all := l.all.Load(); all != nil {
		tell(*all, rec, b)
	}
}

// tell tells all, whatever one of them does: what the others count must not depend on it.
func tell(all []listener, rec *path.Record, b core.Block) {
	usercode.All(all, func(l listener) { l.hear(rec, b) })
}

// OffPath reports whether some of them are no layers of this module, which have part in the operation itself.
func (l *List) OffPath() bool { return l.others.Load() != nil }

// ReleasedAtOnce tells those of a block that was freed at once (package path).
func (l *List) ReleasedAtOnce(b core.Block) {
	if others := l.others.Load(); others != nil {
		tell(*others, nil, b)
	}
}

// Func is a function that hears: a layer subscribes a method of its own by it, which
// so need not be called Released.
type Func func(core.Block)

// Released calls it.
func (f Func) Released(b core.Block) { f(b) }
