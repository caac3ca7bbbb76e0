package guardcost

import (
	"context"
	"errors"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/audit"
	"github.com/fencepost-gpu/fencepost/internal/environ"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

var ctx = context.Background()

// TestMain clears the overrides of what the tests configure.
func TestMain(m *testing.M) {
	for _, v := range environ.Variables() {
		_ = os.Unsetenv(v.Name)
	}
	audit.Listen(audit.Panic)
	goleak.VerifyTestMain(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// streams is what the load of the soak leases, and some more.
const streams = 64

// simulated opens a runtime on a simulated device that has all kernels. It is
// closed at the end of the test, when nothing may be left.
func simulated(t testing.TB, cfg fencepost.Config) (*fencepost.Runtime, *sim.Device) {
	t.Helper()
	device, err := sim.Open(cfg.Sim)
	must(t, err)
	t.Cleanup(func() {
		must(t, device.Close())
		for _, f := range device.Findings() {
			t.Errorf("the oracle: %v", f)
		}
	})
	must(t, testkernels.Register(device))
	if cfg.Driver == nil {
		cfg.Driver = device
	}
	return opened(t, cfg), device
}

// onGPU opens a runtime on the GPU, or skips the test and says why.
func onGPU(t testing.TB, cfg fencepost.Config) *fencepost.Runtime {
	t.Helper()
	if _, err := libcuda.Load(); errors.Is(err, libcuda.ErrNoDriver) {
		t.Skip(err)
	}
	cfg.Device = fencepost.CUDA
	return opened(t, cfg)
}

func opened(t testing.TB, cfg fencepost.Config) *fencepost.Runtime {
	t.Helper()
	cfg.Streams = streams
	rt, err := fencepost.Open(ctx, cfg)
	must(t, err)
	t.Cleanup(func() {
		left, err := rt.Close(ctx)
		must(t, err)
		if len(left.Leaks) > 0 || left.OpenIntents > 0 {
			t.Errorf("left over: %d blocks, %d open intents", len(left.Leaks), left.OpenIntents)
		}
	})
	return rt
}
