package stackconformance_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/internal/testkit/pathtest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/teststack"
	"github.com/fencepost-gpu/fencepost/telemetry"
)

// A layer has its part of a block's record wherever telemetry lies, and does without where more layers
// keep one than a record has room for.
func TestLayersFindTheirRecordsInEveryOrder(t *testing.T) {
	limits := func(up core.Resource) (core.Resource, error) { return budget.New(up, budget.Config{Limit: limit}) }
	guards := func(up core.Resource) (core.Resource, error) {
		return debugguard.New(up, debugguard.Config{Mode: debugguard.Ledger})
	}
	observes := func(up core.Resource) (core.Resource, error) { return telemetry.NewResource(up, telemetry.Config{}) }
	for name, layers := range map[string][]core.Layer{
		"telemetry beneath": {observes, limits, guards},
		"telemetry between": {limits, observes, guards},
		"many budgets":      {limits, limits, limits, limits, observes},
		"many guards":       {guards, guards, guards, guards, observes},
	} {
		t.Run(name, func(t *testing.T) {
			s := teststack.Open(t, teststack.Config{Streams: 2, Pool: &cuda.PoolConfig{}})
			gate := pathtest.NewGate(s.Backend, 0, 0)
			top := must.Get(core.Chain(gate, layers...))(t)
			on := s.Lease(t, "a").ID()
			for range 100 {
				b := must.Get(top.Allocate(t.Context(), core.Request{Bytes: 4096, Stream: on}))(t)
				must.Get(top.Deallocate(t.Context(), b.ID))(t)
			}
			must.Do(t, top.Drain(t.Context()))
			if a, f := gate.AtOnce.Allocations.Load(), gate.AtOnce.Frees.Load(); a < 90 || f < 90 {
				t.Errorf("%d allocations and %d frees of 100 were served at once", a, f)
			}
			if st := top.Stats(); st.Charged != 0 || st.Outstanding() != (core.Amount{}) || st.Allocations != 100 {
				t.Errorf("charged %d, outstanding %+v, allocations %d", st.Charged, st.Outstanding(), st.Allocations)
			}
		})
	}
}
