package workload

import (
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// Image is the device code of the workload.
func Image() driver.Image { return driver.Image{Name: "fencepost.workload"} }

// Register makes the workload's kernels available on a simulated device.
func Register(d *sim.Device) error {
	return d.RegisterModule(Image().Name,
		sim.Kernel{Name: histogramKernel, Declare: declareHistogram, Run: runHistogram},
		sim.Kernel{Name: scanKernel, Declare: declareScan, Run: runScan},
		sim.Kernel{Name: scatterKernel, Declare: declareScatter, Run: runScatter},
		sim.Kernel{Name: ClearKernel, Declare: declareClear, Run: runClear},
		sim.Kernel{Name: buildKernel, Declare: declareBuild, Run: runBuild},
		sim.Kernel{Name: probeKernel, Declare: declareProbe, Run: runProbe},
	)
}

const wordBytes = 4

// histogram(keys, counts, n, shift) counts the digits of the keys.
func declareHistogram(a sim.Args) []sim.Range {
	return []sim.Range{sim.Reads(a.Ptr(0), wordBytes*uint64(a.U32(2))), sim.Writes(a.Ptr(1), wordBytes*digits)}
}

func runHistogram(x *sim.Exec) {
	a := x.Args()
	keys, counts, shift := sim.ReadSlice[uint32](x, a.Ptr(0), int(a.U32(2))), sim.WriteSlice[uint32](x, a.Ptr(1), digits), a.U32(3)
	clear(counts)
	for _, k := range keys {
		counts[k>>shift%digits]++
	}
}

// scan(counts, n) turns counts into offsets.
func declareScan(a sim.Args) []sim.Range {
	return []sim.Range{sim.ReadWrites(a.Ptr(0), wordBytes*uint64(a.U32(1)))}
}

func runScan(x *sim.Exec) {
	var sum uint32
	for i, counts := 0, sim.ReadWriteSlice[uint32](x, x.Args().Ptr(0), int(x.Args().U32(1))); i < len(counts); i++ {
		counts[i], sum = sum, sum+counts[i]
	}
}

// scatter(keys, values, toKeys, toValues, offsets, n, shift) moves each row
// to its digit's next place, keeping the order of equal digits.
func declareScatter(a sim.Args) []sim.Range {
	n := wordBytes * uint64(a.U32(5))
	return []sim.Range{sim.Reads(a.Ptr(0), n), sim.Reads(a.Ptr(1), n), sim.Writes(a.Ptr(2), n), sim.Writes(a.Ptr(3), n), sim.ReadWrites(a.Ptr(4), wordBytes*digits)}
}

func runScatter(x *sim.Exec) {
	a := x.Args()
	n, shift := int(a.U32(5)), a.U32(6)
	keys, values := sim.ReadSlice[uint32](x, a.Ptr(0), n), sim.ReadSlice[uint32](x, a.Ptr(1), n)
	toKeys, toValues := sim.WriteSlice[uint32](x, a.Ptr(2), n), sim.WriteSlice[uint32](x, a.Ptr(3), n)
	offsets := sim.ReadWriteSlice[uint32](x, a.Ptr(4), digits)
	for i, k := range keys {
		digit := k >> shift % digits
		if at := int(offsets[digit]); at < n { // unfenced offsets may be anything
			toKeys[at], toValues[at] = k, values[i]
		}
		offsets[digit]++
	}
}

// clear(table, n) empties a hash table of n words.
func declareClear(a sim.Args) []sim.Range {
	return []sim.Range{sim.Writes(a.Ptr(0), wordBytes*uint64(a.U32(1)))}
}

func runClear(x *sim.Exec) {
	table := sim.WriteSlice[uint32](x, x.Args().Ptr(0), int(x.Args().U32(1)))
	for i := range table {
		table[i] = noPartner
	}
}

// build(keys, values, table, n, mask) inserts unique keys, with linear probing.
func declareBuild(a sim.Args) []sim.Range {
	n := wordBytes * uint64(a.U32(3))
	return []sim.Range{sim.Reads(a.Ptr(0), n), sim.Reads(a.Ptr(1), n), sim.ReadWrites(a.Ptr(2), tableBytes(a.U32(4)))}
}

func tableBytes(mask uint32) uint64 { return wordBytes * slotWords * (uint64(mask) + 1) }

func runBuild(x *sim.Exec) {
	a := x.Args()
	n, mask := int(a.U32(3)), a.U32(4)
	keys, values := sim.ReadSlice[uint32](x, a.Ptr(0), n), sim.ReadSlice[uint32](x, a.Ptr(1), n)
	table := sim.ReadWriteSlice[uint32](x, a.Ptr(2), slotWords*int(mask+1))
	for i, k := range keys {
		slot := hash(k) & mask
		for tries := uint32(0); tries <= mask && table[slotWords*slot] != noPartner; tries++ {
			slot = (slot + 1) & mask
		}
		table[slotWords*slot], table[slotWords*slot+1] = k, values[i]
	}
}

// probe(keys, table, joined, n, mask) looks each key up.
func declareProbe(a sim.Args) []sim.Range {
	n := wordBytes * uint64(a.U32(3))
	return []sim.Range{sim.Reads(a.Ptr(0), n), sim.Reads(a.Ptr(1), tableBytes(a.U32(4))), sim.Writes(a.Ptr(2), n)}
}

func runProbe(x *sim.Exec) {
	a := x.Args()
	n, mask := int(a.U32(3)), a.U32(4)
	keys, table := sim.ReadSlice[uint32](x, a.Ptr(0), n), sim.ReadSlice[uint32](x, a.Ptr(1), slotWords*int(mask+1))
	joined := sim.WriteSlice[uint32](x, a.Ptr(2), n)
	for i, k := range keys {
		joined[i] = noPartner
		slot := hash(k) & mask
		for tries := uint32(0); tries <= mask && table[slotWords*slot] != noPartner; tries++ {
			if table[slotWords*slot] == k {
				joined[i] = table[slotWords*slot+1]
				break
			}
			slot = (slot + 1) & mask
		}
	}
}

func hash(k uint32) uint32 {
	k *= 0x9e3779b1
	return k ^ k>>15
}
