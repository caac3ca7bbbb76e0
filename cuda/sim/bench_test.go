package sim

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

func benchDevice(b *testing.B) *program {
	d, err := Open(Config{})
	must(b, err)
	b.Cleanup(func() { must(b, d.Close()) })
	return newProgram(b, d)
}

func BenchmarkAllocFree(b *testing.B) {
	p := benchDevice(b)
	s := p.stream()
	b.ReportAllocs()
	for b.Loop() {
		ptr, _ := p.d.MemAllocAsync(4096, 0, s)
		_ = p.d.MemFreeAsync(ptr, s)
	}
}

func BenchmarkAllocFreeRecord(b *testing.B) {
	p := benchDevice(b)
	s, e := p.stream(), p.event()
	b.ReportAllocs()
	for b.Loop() {
		ptr, _ := p.d.MemAllocAsync(4096, 0, s)
		_ = p.d.EventRecord(e, s)
		_ = p.d.MemFreeAsync(ptr, s)
	}
}

// BenchmarkAllocFreeAmong100kBlocks replaces one of 100 000 live blocks.
func BenchmarkAllocFreeAmong100kBlocks(b *testing.B) {
	p := benchDevice(b)
	s := p.stream()
	blocks := make([]uint64, 100_000)
	for i := range blocks {
		blocks[i] = p.alloc(uint64(256+i%64*256), s)
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		_ = p.d.MemFreeAsync(blocks[i], s)
		blocks[i], _ = p.d.MemAllocAsync(uint64(256+i*7%64*256), 0, s)
		i = (i + 7919) % len(blocks)
	}
}

func BenchmarkRecordWait(b *testing.B) {
	p := benchDevice(b)
	s, o, e := p.stream(), p.stream(), p.event()
	b.ReportAllocs()
	for b.Loop() {
		_ = p.d.EventRecord(e, s)
		_ = p.d.StreamWait(o, e)
	}
}

func BenchmarkEventQuery(b *testing.B) {
	p := benchDevice(b)
	s, e := p.stream(), p.event()
	must(b, p.d.EventRecord(e, s))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = p.d.EventQuery(e)
	}
}

func BenchmarkLaunch(b *testing.B) {
	p := benchDevice(b)
	s := p.stream()
	ptr := p.alloc(4096, s)
	f, err := p.d.ModuleFunction(p.module, "read")
	must(b, err)
	l := driver.Launch{Function: f, Stream: s, Args: []driver.Arg{driver.Ptr(ptr), driver.U64(4096)}}
	b.ReportAllocs()
	for b.Loop() {
		_ = p.d.Launch(&l)
	}
	must(b, p.d.Synchronize())
}
