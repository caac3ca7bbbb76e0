package device_test

import (
	"slices"
	"testing"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/device"
)

// The bug for practice is found, by its tag and its launch, and costs nobody a
// right result. Columns that fill their block to the last byte are spared, for
// what is behind them may be somebody's.
func TestAPlantedOverrunIsFoundAndChangesNoResult(t *testing.T) {
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Sim: sim.Config{Bytes: 64 << 20}})
	must(t, err)
	engine, err := device.New(device.Config{Runtime: rt, TracerProvider: noop.NewTracerProvider(), PlantOverrun: 2})
	must(t, err)
	for i, want := range []uint64{0, 1, 1, 1, 2} {
		rows := []int{1000, 1000, 1000, 1024, 1000}[i]
		keys := make([]uint32, rows)
		for i := range keys {
			keys[i] = uint32(rows - i)
		}
		got, err := engine.Sort(t.Context(), slices.Clone(keys))
		slices.Reverse(keys)
		if err != nil || !slices.Equal(got, keys) {
			t.Errorf("sort %d: wrong, or %v", i, err)
		}
		if n := rt.Findings().Counts()[core.FindingOutOfBoundsWrite]; n != want {
			t.Errorf("%d findings after sort %d, want %d", n, i, want)
		}
	}
	for _, f := range rt.Findings().Recent() {
		if f.Victim.Tag != "service.sort" {
			t.Errorf("found of %q: %v", f.Victim.Tag, f)
		}
	}
	left, err := rt.Close(t.Context())
	must(t, err)
	if len(left.Leaks) > 0 || len(rt.Findings().Recent()) != 2 {
		t.Errorf("left over %+v; found %v", left, rt.Findings().Recent())
	}
}
