package cuda

import (
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// listeners is a list that is read on every release and written at
// construction.
type listeners struct {
	list atomic.Pointer[[]core.Listener]
}

func (l *listeners) add(listener core.Listener) {
	if listener == nil {
		return // nobody to tell
	}
	for {
		old := l.list.Load()
		var next []core.Listener
		if old != nil {
			next = append(next, *old...)
		}
		next = append(next, listener)
		if l.list.CompareAndSwap(old, &next) {
			return
		}
	}
}

func (l *listeners) released(b core.Block) {
	if list := l.list.Load(); list != nil {
		for _, listener := range *list {
			listener.Released(b)
		}
	}
}
