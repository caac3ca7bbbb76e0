package cuda_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
)

// Each of 10 000 leases has a block at once, and the peaks are right to a 64th. That takes half a
// minute on a busy machine: the simulated device has a goroutine for each stream.
func TestTenThousandLeasesHaveABlockEach(t *testing.T) {
	leases := 10_000
	if testing.Short() {
		leases = 1000
	}
	for name, pool := range map[string]*cuda.PoolConfig{"async": nil, "pool": {ReapInterval: -1}} {
		t.Run(name, func(t *testing.T) {
			s := teststack.Open(t, teststack.Config{Sim: sim.Config{Bytes: 64 << 30}, Pool: pool,
				Async: cuda.AsyncConfig{ReapInterval: -1}, Streams: leases})
			all := make([]*cuda.Lease, leases)
			blocks := make([]core.Block, leases)
			for i := range all {
				all[i] = s.Lease(t, "many")
			}
			for i, l := range all {
				b, err := s.Runtime.Allocate(t.Context(), core.Request{Bytes: 4096, Stream: l.ID()})
				must(t, err)
				blocks[i] = b
			}
			if st := s.Runtime.Stats(); st.Live.Bytes != uint64(leases)*4096 || st.PeakBytes < st.Live.Bytes ||
				st.PeakBytes > st.Live.Bytes+st.Live.Bytes/64 {
				t.Errorf("%d bytes are live, and the peak is %d", st.Live.Bytes, st.PeakBytes)
			}
			for _, b := range blocks {
				_, err := s.Runtime.Deallocate(t.Context(), b.ID)
				must(t, err)
			}
		})
	}
}
