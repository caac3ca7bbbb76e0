package bench

import (
	"context"
	"testing"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// fenced runs it through the runtime.
type fenced struct {
	b       *testing.B
	runtime *core.Runtime
	memory  *cuda.MemoryManager
	streams [2]*cuda.Lease
	kernels map[string]*cuda.Kernel
	owned   []*cuda.Slice[uint32]
	uses    []core.Use
}

func (f *fenced) alloc(stream, words int) column {
	col, err := cuda.Alloc[uint32](context.Background(), f.memory, words, cuda.AllocOptions{Stream: f.streams[stream].ID(), Tag: "join"})
	check(f.b, err)
	f.owned = append(f.owned, col)
	return col
}

func (f *fenced) upload(stream int, dst column, src []uint32) {
	check(f.b, cuda.CopyToDevice(context.Background(), dst.(*cuda.Slice[uint32]), f.streams[stream].ID(), src))
}

func (f *fenced) download(stream int, dst []uint32, src column) {
	check(f.b, cuda.CopyToHost(context.Background(), dst, src.(*cuda.Slice[uint32]), f.streams[stream].ID()))
}

func (f *fenced) launch(stream int, kernel string, grid cuda.Grid, in, out []column, args ...driver.Arg) {
	f.uses = f.uses[:0]
	for _, col := range in {
		f.uses = append(f.uses, col.(*cuda.Slice[uint32]).Use(core.Read))
	}
	for _, col := range out {
		f.uses = append(f.uses, col.(*cuda.Slice[uint32]).Use(core.ReadWrite))
	}
	check(f.b, f.kernels[kernel].Launch(context.Background(), f.runtime, f.streams[stream], grid, f.uses, args...))
}

func (f *fenced) order(int, int) {}

func (f *fenced) finish() {
	for _, col := range f.owned {
		check(f.b, col.Free(context.Background()))
	}
	f.owned = f.owned[:0]
}

// byHand runs it on the driver.
type byHand struct {
	*gpu
	b         *testing.B
	functions map[string]driver.Function
	owned     []raw
}

type raw struct {
	ptr    uint64
	stream int
}

func (r raw) Arg() driver.Arg { return driver.Ptr(r.ptr) }

func (h *byHand) alloc(stream, words int) column {
	ptr, err := h.MemAllocAsync(4*uint64(words), h.pool, h.streams[stream])
	check(h.b, err)
	h.owned = append(h.owned, raw{ptr, stream})
	return raw{ptr, stream}
}

func (h *byHand) upload(stream int, dst column, src []uint32) {
	check(h.b, h.CopyToDeviceAsync(dst.(raw).ptr, wordsAsBytes(src), h.streams[stream]))
}

func (h *byHand) download(stream int, dst []uint32, src column) {
	check(h.b, h.CopyToHostAsync(wordsAsBytes(dst), src.(raw).ptr, h.streams[stream]))
}

func (h *byHand) launch(stream int, kernel string, grid cuda.Grid, _, _ []column, args ...driver.Arg) {
	check(h.b, h.Launch(&driver.Launch{Function: h.functions[kernel], Grid: grid.Grid, Block: grid.Block, Stream: h.streams[stream], Args: args}))
}

func (h *byHand) order(from, to int) {
	check(h.b, h.EventRecord(h.events[from], h.streams[from]))
	check(h.b, h.StreamWait(h.streams[to], h.events[from]))
}

func (h *byHand) finish() {
	for _, r := range h.owned {
		check(h.b, h.MemFreeAsync(r.ptr, h.streams[r.stream]))
	}
	h.owned = h.owned[:0]
}

func wordsAsBytes(s []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 4*len(s))
}
