package listeners

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

func TestListenersHearInOrder(t *testing.T) {
	var l List
	l.Released(nil, core.Block{}) // nobody hears
	l.Add(nil)
	var order []int
	for i := range 3 {
		l.Add(Func(func(b core.Block) {
			if b.Bytes != 7 {
				t.Errorf("listener %d heard of %d bytes", i, b.Bytes)
			}
			order = append(order, i)
			if i == 0 && len(order) == 1 {
				l.Add(Func(func(core.Block) { order = append(order, 9) })) // from the next release on
			}
		}))
	}
	l.Released(nil, core.Block{Bytes: 7})
	l.Released(nil, core.Block{Bytes: 7})
	if want := []int{0, 1, 2, 0, 1, 2, 9}; !slices.Equal(order, want) {
		t.Errorf("heard in the order %v, want %v", order, want)
	}
}

func TestNoListenerIsLostWhenManyAreAdded(t *testing.T) {
	const goroutines, each = 4, 100
	var l List
	var n atomic.Int64
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			for range each {
				l.Add(Func(func(core.Block) { n.Add(1) }))
				l.Released(nil, core.Block{})
			}
		})
	}
	group.Wait()
	n.Store(0)
	l.Released(nil, core.Block{})
	if n.Load() != goroutines*each {
		t.Errorf("%d of %d listeners hear", n.Load(), goroutines*each)
	}
}
