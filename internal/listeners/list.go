// Package listeners is the list that backends and layers keep of who hears of released
// blocks. It is read on every release and changes when something is built, so it is
// replaced and never changed: telling takes no lock, and a listener may add another.
package listeners

import (
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// List is a list of listeners. The zero value is empty and ready for use.
type List struct {
	all, others atomic.Pointer[[]func(core.Block)]
}

// Add adds a listener; nil is ignored. It hears of the blocks that are released
// after Add has returned.
func (l *List) Add(listener core.Listener) {
	if listener == nil {
		return
	}
	served, ok := listener.(Served)
	if ok {
		listener = served.Func
	} else {
		add(&l.others, listener)
	}
	add(&l.all, listener)
}

func add(to *atomic.Pointer[[]func(core.Block)], listener core.Listener) {
	for {
		old := to.Load()
		var next []func(core.Block)
		if old != nil {
			next = append(next, *old...)
		}
		next = append(next, hears(listener))
		if to.CompareAndSwap(old, &next) {
			return
		}
	}
}

// Released tells all of them, in the order in which they were added.
func (l *List) Released(b core.Block) {
	if all := l.all.Load(); all != nil {
		tell(*all, b)
	}
}

// tell goes on where a listener panics: what the others count must not depend on it.
func tell(all []func(core.Block), b core.Block) {
	told := 0
	defer func() {
		if told < len(all) {
			tell(all[told:], b)
		}
	}()
	for told < len(all) {
		told++
		all[told-1](b)
	}
}

// ReleasedQuickly tells those of them who are not served by the quick path (package quick).
func (l *List) ReleasedQuickly(b core.Block) {
	if others := l.others.Load(); others != nil {
		tell(*others, b)
	}
}

// hears is what a listener hears by. A [Func] is called as it is: a block is a large
// value, and each call in between copies it.
func hears(l core.Listener) func(core.Block) {
	if f, ok := l.(Func); ok {
		return f
	}
	return l.Released
}

// Func is a function that hears: a layer subscribes a method of its own by it, which
// so need not be called Released.
type Func func(core.Block)

// Released calls it.
func (f Func) Released(b core.Block) { f(b) }

// Served is the listener of a layer that has a quick path, and does by itself what it has
// to when a block is freed on that.
type Served struct{ Func }
