package bench

import (
	"math"
	"os"
	"testing"

	"github.com/fencepost-gpu/fencepost"
)

// BenchmarkGPUPeers is what Fencepost does in the loops that other allocators run in
// tools/peers, and in some that they have no counterpart for. With FENCEPOST_GPU_DRY_RUN=1
// the driver does nothing, and the guard chooses no block below 1 MiB for a stack: it takes so many
// in a second, and under a tool that counts instructions a second is shorter by far.
func BenchmarkGPUPeers(b *testing.B) {
	if os.Getenv("FENCEPOST_GPU_DRY_RUN") == "1" {
		peers(b, nothing, func(cfg *fencepost.Config) { cfg.GuardConfig.Advanced.StackBytes = math.MaxInt64 })
		return
	}
	peers(b, realGPU(b))
}
