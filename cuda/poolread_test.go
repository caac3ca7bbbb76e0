package cuda_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
)

// A reap that is slow to come back from the driver must not put what it read
// over what another has read since: on a device that goes quiet nobody corrects
// it.
func TestAnOlderReadingOfThePoolReplacesNoNewerOne(t *testing.T) {
	b, slow := newSlowBench(t)
	s := b.leases(1)[0]
	reading, proceed := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	hook := func(m drivertest.Method, after bool) {
		if m == drivertest.PoolStats && after && once.CompareAndSwap(false, true) {
			close(reading)
			<-proceed
		}
	}
	slow.hook.Store(&hook)
	var group sync.WaitGroup
	group.Go(func() { must(t, b.Async.ReapPending(ctx)) })
	<-reading
	block, err := b.Runtime.Allocate(ctx, core.Request{Bytes: 4096, Stream: s.ID()})
	must(t, err)
	newer := make(chan struct{})
	group.Go(func() { defer close(newer); must(t, b.Async.ReapPending(ctx)) })
	select { // it may have to wait for the other
	case <-newer:
	case <-time.After(20 * time.Millisecond):
	}
	close(proceed)
	group.Wait()
	equal(t, "used bytes of the pool", b.Runtime.Stats().PoolUsed, block.Bytes)
	_, err = b.Runtime.Deallocate(ctx, block.ID)
	must(t, err)
}
