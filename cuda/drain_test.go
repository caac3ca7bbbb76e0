package cuda_test

import (
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// slowListener holds the release of one block up.
type slowListener struct {
	of                 core.Generation
	entered, gate, end chan struct{}
}

func (l *slowListener) Released(b core.Block) {
	if b.ID.Generation == l.of {
		close(l.entered)
		<-l.gate
		close(l.end)
	}
}

// Later frees that another reaper settles must not stand in for an earlier
// one that is still on its way out of the books.
func TestDrainWaitsForFreesAndNotForBytes(t *testing.T) {
	b := newBench(t)
	l := b.leases(1)[0]
	earlier, later := b.alloc(l, 256), b.alloc(l, 256)
	slow := &slowListener{earlier.ID.Generation, make(chan struct{}), make(chan struct{}), make(chan struct{})}
	b.Async.Subscribe(slow)
	b.free(earlier)
	b.sync(l)
	go func() { _ = b.Runtime.ReapPending(ctx) }()
	<-slow.entered
	drained := make(chan struct{})
	go func() { b.drain(); close(drained) }()
	time.Sleep(10 * time.Millisecond)
	b.free(later)
	select {
	case <-drained:
		t.Error("Drain returned before the first free had left the books")
	case <-time.After(100 * time.Millisecond):
	}
	close(slow.gate)
	<-slow.end
	<-drained
}
