package bench

import "testing"

// BenchmarkGPUPeers is what Fencepost does in the loops that other allocators run in
// tools/peers, and in some that they have no counterpart for.
func BenchmarkGPUPeers(b *testing.B) { peers(b, realGPU(b)) }
