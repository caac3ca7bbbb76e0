package bench

import "testing"

// BenchmarkGPUIsolatedPair is BenchmarkIsolatedPair on a GPU, where the driver's
// calls are what it costs.
func BenchmarkGPUIsolatedPair(b *testing.B) {
	isolatedPairs(b, realGPU(b)(), 4<<10, 2<<20, 64<<20)
}
