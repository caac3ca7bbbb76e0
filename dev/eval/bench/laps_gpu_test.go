package bench

import (
	"fmt"
	"testing"
)

// BenchmarkGPUAllocationLaps is what the slowest allocations of sixteen threads wait for, in
// rounds over one device: each begins with an empty pool.
func BenchmarkGPUAllocationLaps(b *testing.B) {
	drv := realGPU(b)
	for round := range 5 {
		b.Run(fmt.Sprintf("round=%d", round), func(b *testing.B) { allocationLaps(b, drv(), prices{}, 1, 20000) })
	}
}
