package bench

import (
	"fmt"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
	"github.com/fencepost-gpu/fencepost/internal/testkit/testkernels"
)

// BenchmarkGPUVerifyBandwidth is the comparison of 1 GiB of poisoned blocks
// between red zones, in bytes a second, and beside it a kernel that only reads
// and adds up: ratio is the one to the other. It fails below the four fifths
// that the guard promises.
func BenchmarkGPUVerifyBandwidth(b *testing.B) {
	library, err := libcuda.Load()
	if err != nil {
		b.Skip(err)
	}
	g := made(b, func() (*libcuda.Device, error) { return library.Open(0) })
	b.Cleanup(func() { check(b, g.Close()) })
	for _, block := range []uint64{64 << 20, 1 << 20, 64 << 10} {
		b.Run(fmt.Sprintf("block=%dKiB", block>>10), func(b *testing.B) {
			y := newYardstick(b, g, 1<<30, block)
			y.hold = holder(y)
			for b.Loop() {
				y.round()
			}
			verify, read := y.median(y.verified), y.median(y.read)
			b.ReportMetric(verify, "verify-GB/s")
			b.ReportMetric(read, "read-GB/s")
			b.ReportMetric(verify/read, "ratio")
			b.ReportMetric(y.median(y.alone), "alone-GB/s")
			if verify < 0.8*read {
				b.Errorf("comparing reaches %.2f of what reading does: %.0f of %.0f GB/s", verify/read, verify, read)
			}
		})
	}
}

// holder returns a hold of the yardstick's stream by a kernel that waits for a
// word of page-locked memory.
func holder(y *yardstick) func() func() {
	y.Helper()
	must := func(err error) {
		if err != nil {
			y.Fatal(err)
		}
	}
	kernel, err := y.module.Kernel(testkernels.Hold)
	must(err)
	mem, err := y.drv.HostAlloc(8)
	must(err)
	y.Cleanup(func() { must(y.drv.HostFree(mem)) })
	flag := (*uint64)(unsafe.Pointer(&mem.Bytes[0]))
	return func() func() {
		atomic.StoreUint64(flag, 0)
		must(kernel.Enqueue(y.on.Handle(), cuda.Blocks1D(1, 1), driver.Ptr(mem.DevicePtr)))
		return func() { atomic.StoreUint64(flag, 1) }
	}
}
