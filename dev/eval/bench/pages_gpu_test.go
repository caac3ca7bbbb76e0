package bench

import (
	"fmt"
	"testing"
)

// pageSizes are what a pool over mapped pages may take for the size of a handle.
var pageSizes = []uint64{2 << 20, 32 << 20, 256 << 20}

// BenchmarkGPUPages is what it takes to make a pool larger by pages of one handle
// each, to move a page, and to give the pages back.
func BenchmarkGPUPages(b *testing.B) {
	d := realGPU(b)()
	for _, bytes := range []uint64{32 << 20, 10 << 30} {
		for _, page := range pageSizes {
			if page > bytes {
				continue
			}
			b.Run(fmt.Sprintf("bytes=%dMiB/page=%dMiB", bytes>>20, page>>20), func(b *testing.B) {
				r := newPageRow(b, d, bytes, page)
				for b.Loop() {
					r.grow()
					r.remap()
					r.remap()
					r.drop()
				}
				r.close()
				r.report(b)
			})
		}
	}
}

// BenchmarkGPUPageBandwidth is what kernels read in a second, in a row and at
// random places, of memory in pages, and of the driver's pool.
func BenchmarkGPUPageBandwidth(b *testing.B) {
	const bytes = 16 << 30
	d := realGPU(b)()
	rd := newReader(b, d, bytes, 1<<22)
	measure := func(b *testing.B, ptr uint64) {
		rd.aim(ptr)
		var row, random float64
		for b.Loop() {
			row, random = max(row, rd.row(ptr)), max(random, rd.random())
		}
		b.ReportMetric(row, "row-GB/s")
		b.ReportMetric(random, "random-GB/s")
	}
	b.Run("pool", func(b *testing.B) {
		ptr, err := d.MemAllocAsync(bytes, 0, rd.on)
		check(b, err)
		measure(b, ptr)
		check(b, d.MemFreeAsync(ptr, rd.on))
		check(b, d.StreamSynchronize(rd.on))
	})
	for _, page := range pageSizes {
		b.Run(fmt.Sprintf("page=%dMiB", page>>20), func(b *testing.B) {
			r := newPageRow(b, d, bytes, page)
			r.grow()
			measure(b, r.ptr)
			r.drop()
			r.close()
		})
	}
}
