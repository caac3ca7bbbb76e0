package telemetry_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

func TestOperationsAreCounted(t *testing.T) {
	r := must[*telemetry.Resource](t)(telemetry.NewResource(newFencing(), telemetry.Config{}))
	life(t.Context(), t, r)
	check(t, r.Drain(t.Context()))
	o := r.Operations()
	for op, want := range map[core.Op]uint64{
		core.OpAllocate: 1, core.OpDeallocate: 1, core.OpPrepare: 2, core.OpFinish: 2, core.OpDrain: 1,
		core.OpAbort: 0, core.OpRefusal: 0, core.OpRelease: 0,
	} {
		if got := o.Succeeded(op); got != want {
			t.Errorf("%v: %d calls, want %d", op, got, want)
		}
	}
	if _, err := r.Allocate(t.Context(), core.Request{}); err == nil {
		t.Fatal("zero bytes were allocated")
	}
	if n := o.Calls(core.OpAllocate); n != 1 {
		t.Errorf("a snapshot has %d allocations, want 1: it must not change", n)
	}
	later := r.Operations()
	if later.Calls(core.OpAllocate) != 2 || later.Refusals(metrics.ReasonInvalidRequest) != 1 || later.Failed(core.OpAllocate, metrics.Reason(99)) != 0 {
		t.Errorf("%d calls, %d refusals", later.Calls(core.OpAllocate), later.Refusals(metrics.ReasonInvalidRequest))
	}
}
