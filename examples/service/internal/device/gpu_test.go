package device_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/device"
)

// The jobs of the tests above on a GPU, with the guard on every block.
func TestJobsAreRightOnAGPU(t *testing.T) {
	if _, err := libcuda.Load(); errors.Is(err, libcuda.ErrNoDriver) {
		t.Skip(err)
	}
	rt, err := fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.CUDA, Guard: "hunt", Budget: 1 << 30})
	must(t, err)
	engine, err := device.New(device.Config{Runtime: rt, TracerProvider: noop.NewTracerProvider(), Patience: time.Minute})
	must(t, err)
	for name, check := range map[string]func(*testing.T, *device.Engine){
		"sorts": checkSorts, "joins": checkJoins, "refused": checkRefusedTables, "many": checkManyJobs,
	} {
		t.Run(name, func(t *testing.T) { check(t, engine) })
	}
	ctx := context.Background()
	must(t, rt.Drain(ctx))
	if st := rt.Stats(); st.Outstanding() != (core.Amount{}) || st.Claims != 0 || st.OpenIntents != 0 {
		t.Errorf("held after the last job: %+v", st)
	}
	left, err := rt.Close(ctx)
	must(t, err)
	if counts := rt.Findings().Counts(); len(left.Leaks) > 0 || len(counts) > 0 {
		t.Errorf("left over %+v, found %v", left, counts)
	}
}
