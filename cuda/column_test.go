package cuda_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

func TestExternalColumnIsReleasedOnce(t *testing.T) {
	var released atomic.Int32
	c := cuda.ExternalColumn(cuda.External{Ptr: 4096, Bytes: 64, Release: func() { released.Add(1) }})
	var group sync.WaitGroup
	for range 4 {
		group.Go(c.Release)
	}
	group.Wait()
	equal(t, "releases of a column", released.Load(), 1)
	cuda.ExternalColumn(cuda.External{}).Release() // without a producer's release there is nothing to do
}

func TestOwnedColumnIsItsSlice(t *testing.T) {
	b := newBench(t)
	slice := b.owned(b.leases(1)[0])
	c := cuda.OwnedColumn(slice)
	equal(t, "external", c.IsExternal(), false)
	equal(t, "address", c.Ptr(), slice.Ptr())
	equal(t, "bytes", c.Bytes(), 256)
	c.Release() // the slice stays the caller's
	equal(t, "state", b.Runtime.State(slice.BlockID()), core.Live)
}
