package testkernels

import (
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// Register makes the kernels, all but [Hold], available on a simulated device.
func Register(d *sim.Device) error {
	return d.RegisterModule(Image().Name,
		sim.Kernel{Name: Delay, Run: func(*sim.Exec) {}},
		sim.Kernel{Name: Write, Declare: declareWrite, Run: runWrite},
		sim.Kernel{Name: Check, Declare: declareCheck, Run: runCheck},
		sim.Kernel{Name: CopyAdd, Declare: declareCopyAdd, Run: runCopyAdd},
		sim.Kernel{Name: ReadAll, Declare: declareReadAll, Run: runReadAll},
		sim.Kernel{Name: Illegal, Declare: declareIllegal, Run: runIllegal},
		sim.Kernel{Name: OutOfBounds, Declare: declareWrite, Run: runOutOfBounds},
	)
}

const wordBytes = 8

func declareWrite(a sim.Args) []sim.Range {
	return []sim.Range{sim.Writes(a.Ptr(0), wordBytes*a.U64(1))}
}

func runWrite(x *sim.Exec) {
	a := x.Args()
	fill(x, a.Ptr(0), a.U64(1), a.U64(2))
}

func fill(x *sim.Exec, ptr, n, value uint64) {
	words := sim.WriteSlice[uint64](x, ptr, int(n))
	for i := range words {
		words[i] = value
	}
}

func declareCheck(a sim.Args) []sim.Range {
	return []sim.Range{sim.Reads(a.Ptr(0), wordBytes*a.U64(1)), sim.ReadWrites(a.Ptr(3), wordBytes)}
}

// runCheck touches the sum only where there is something to add, like the
// kernel of the GPU.
func runCheck(x *sim.Exec) {
	a := x.Args()
	differing := uint64(0)
	for _, word := range sim.ReadSlice[uint64](x, a.Ptr(0), int(a.U64(1))) {
		if word != a.U64(2) {
			differing++
		}
	}
	if differing > 0 {
		sim.ReadWriteSlice[uint64](x, a.Ptr(3), 1)[0] += differing
	}
}

func declareCopyAdd(a sim.Args) []sim.Range {
	n := wordBytes * a.U64(2)
	return []sim.Range{sim.Writes(a.Ptr(0), n), sim.Reads(a.Ptr(1), n)}
}

func runCopyAdd(x *sim.Exec) {
	a := x.Args()
	n := int(a.U64(2))
	to := sim.WriteSlice[uint64](x, a.Ptr(0), n)
	for i, word := range sim.ReadSlice[uint64](x, a.Ptr(1), n) {
		to[i] = word + a.U64(3)
	}
}

func declareReadAll(a sim.Args) []sim.Range {
	return []sim.Range{sim.Reads(a.Ptr(0), wordBytes*a.U64(1)), sim.ReadWrites(a.Ptr(2), wordBytes)}
}

func runReadAll(x *sim.Exec) {
	a := x.Args()
	out := sim.ReadWriteSlice[uint64](x, a.Ptr(2), 1)
	for _, word := range sim.ReadSlice[uint64](x, a.Ptr(0), int(a.U64(1))) {
		out[0] += word
	}
}

func declareIllegal(a sim.Args) []sim.Range { return []sim.Range{sim.Writes(a.Ptr(0), wordBytes)} }

func runIllegal(x *sim.Exec) { fill(x, x.Args().Ptr(0), 1, Planted) }

// runOutOfBounds writes what its declaration does not say: that is the bug.
func runOutOfBounds(x *sim.Exec) {
	a := x.Args()
	fill(x, a.Ptr(0)+wordBytes*a.U64(1), a.U64(2), Planted)
}
