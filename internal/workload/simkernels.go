package workload

import (
	_ "embed"

	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

//go:embed workload.ptx
var ptx []byte

// Image is the device code of the workload, for a GPU. A simulated device runs
// the twins of its kernels instead; [Load] sees to both.
func Image() driver.Image { return driver.Image{Name: "fencepost.workload", PTX: ptx} }

// Load loads the workload's kernels on any device.
func Load(drv driver.Driver) (*cuda.Module, error) {
	if device, ok := driver.Unwrap(drv).(*sim.Device); ok {
		if err := registerTwins(device); err != nil {
			return nil, err
		}
	}
	return cuda.LoadModule(drv, Image())
}

func registerTwins(d *sim.Device) error {
	return d.RegisterModule(Image().Name,
		sim.Kernel{Name: histogramKernel, Declare: declareHistogram, Run: runHistogram},
		sim.Kernel{Name: scanKernel, Declare: declareScan, Run: runScan},
		sim.Kernel{Name: scatterKernel, Declare: declareScatter, Run: runScatter},
		sim.Kernel{Name: ClearKernel, Declare: declareClear, Run: runClear},
		sim.Kernel{Name: buildKernel, Declare: declareBuild, Run: runBuild},
		sim.Kernel{Name: probeKernel, Declare: declareProbe, Run: runProbe},
		sim.Kernel{Name: filterKernel, Declare: declareFilter, Run: runFilter},
	)
}

const (
	wordBytes = 4
	// maxProbes bounds a search in a table that a missing fence has filled
	// with anything. Honest tables, at most half full, need a few dozen.
	maxProbes = 1024
)

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
		for probe := range uint32(maxProbes) {
			slot := slotWords * ((hash(k) + probe) & mask)
			if table[slot] == noPartner {
				table[slot], table[slot+1] = k, values[i]
				break
			}
		}
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
		for probe := range uint32(maxProbes) {
			slot := slotWords * ((hash(k) + probe) & mask)
			if table[slot] == k {
				joined[i] = table[slot+1]
			}
			if table[slot] == k || table[slot] == noPartner {
				break
			}
		}
	}
}

func hash(k uint32) uint32 {
	k *= 0x9e3779b1
	return k ^ k>>15
}

// filter(values, joined, kept, counts, n, below) keeps the values of the rows
// whose partner's value is below a bound, at the beginning of each slice, and
// counts them.
func declareFilter(a sim.Args) []sim.Range {
	n := a.U32(4)
	return []sim.Range{sim.Reads(a.Ptr(0), wordBytes*uint64(n)), sim.Reads(a.Ptr(1), wordBytes*uint64(n)),
		sim.Writes(a.Ptr(2), wordBytes*uint64(n)), sim.Writes(a.Ptr(3), wordBytes*uint64(slicesOf(int(n))))}
}

func runFilter(x *sim.Exec) {
	a := x.Args()
	n, below := int(a.U32(4)), a.U32(5)
	values, joined := sim.ReadSlice[uint32](x, a.Ptr(0), n), sim.ReadSlice[uint32](x, a.Ptr(1), n)
	kept, counts := sim.WriteSlice[uint32](x, a.Ptr(2), n), sim.WriteSlice[uint32](x, a.Ptr(3), slicesOf(n))
	for s := range counts {
		values, joined, kept := sliceOf(values, s), sliceOf(joined, s), sliceOf(kept, s)
		counts[s] = 0
		for i, v := range values {
			if joined[i] < below {
				kept[counts[s]] = v
				counts[s]++
			}
		}
	}
}
