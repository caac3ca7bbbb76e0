package bench

import (
	"os"
	"testing"
)

// BenchmarkGPUPeers is what Fencepost does in the loops that other allocators run in
// tools/peers, and in some that they have no counterpart for. With FENCEPOST_GPU_DRY_RUN=1
// the driver does nothing.
func BenchmarkGPUPeers(b *testing.B) {
	if os.Getenv("FENCEPOST_GPU_DRY_RUN") == "1" {
		peers(b, nothing)
		return
	}
	peers(b, realGPU(b))
}
