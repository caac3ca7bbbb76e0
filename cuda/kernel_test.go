package cuda_test

import (
	"encoding/binary"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

const (
	mixImage  = "cuda.test"
	mixKernel = "mix"
	addKernel = "add"
)

// mixArgs are the arguments of mix(seed, (ptr, bytes, access)...), which reads
// what it may read, mixes it with the seed, and fills what it may write with
// the result.
func mixArgs(seed uint64, uses []use) []driver.Arg {
	args := []driver.Arg{driver.U64(seed)}
	for _, u := range uses {
		args = append(args, driver.Ptr(u.block.ID.Ptr), driver.U64(u.block.Bytes), driver.U32(uint32(u.access)))
	}
	return args
}

func declareMix(a sim.Args) []sim.Range {
	var ranges []sim.Range
	for i := 1; i < a.Len(); i += 3 {
		ranges = append(ranges, sim.Range{Ptr: a.Ptr(i), Bytes: a.U64(i + 1), Access: core.Access(a.U32(i + 2))})
	}
	return ranges
}

func runMix(x *sim.Exec) {
	a := x.Args()
	h := a.U64(0)
	for i := 1; i < a.Len(); i += 3 {
		if core.Access(a.U32(i + 2)).Reads() {
			h = mix(h, sim.ReadSlice[uint64](x, a.Ptr(i), int(a.U64(i+1)/8)))
		}
	}
	for i := 1; i < a.Len(); i += 3 {
		if core.Access(a.U32(i + 2)).Writes() {
			words := sim.WriteSlice[uint64](x, a.Ptr(i), int(a.U64(i+1)/8))
			for j := range words {
				words[j] = h
			}
		}
	}
}

// mix folds words into h.
func mix(h uint64, words []uint64) uint64 {
	for _, w := range words {
		h = (h ^ w) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// runAdd adds one to each word that it may write; its arguments are mix's.
func runAdd(x *sim.Exec) {
	a := x.Args()
	for i := 1; i < a.Len(); i += 3 {
		words := sim.ReadWriteSlice[uint64](x, a.Ptr(i), int(a.U64(i+1)/8))
		for j := range words {
			words[j]++
		}
	}
}

func loadMix(t testing.TB, d *sim.Device) *cuda.Kernel {
	t.Helper()
	must(t, d.RegisterModule(mixImage, sim.Kernel{Name: mixKernel, Declare: declareMix, Run: runMix}, sim.Kernel{Name: addKernel, Declare: declareMix, Run: runAdd}))
	return loadKernel(t, d, mixKernel)
}

// loadKernel loads past any wrapper, so that tests count their own calls only.
func loadKernel(t testing.TB, d *sim.Device, name string) *cuda.Kernel {
	t.Helper()
	module, err := cuda.LoadModule(d, driver.Image{Name: mixImage})
	must(t, err)
	kernel, err := module.Kernel(name)
	must(t, err)
	return kernel
}

// enqueue launches the kernel raw.
func (b *bench) enqueue(on *cuda.Lease, uses ...[]use) {
	b.Helper()
	must(b, b.kernel.Enqueue(on.Handle(), grid, mixArgs(1, join(uses))...))
}

func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
