package kernels

import "github.com/fencepost-gpu/fencepost/cuda/sim"

// twins are the kernels for the simulated device.
func twins() []sim.Kernel {
	return []sim.Kernel{
		{Name: histogram, Declare: declareHistogram, Run: runHistogram},
		{Name: scan, Declare: declareScan, Run: runScan},
		{Name: scatter, Declare: declareScatter, Run: runScatter},
		{Name: clearTable, Declare: declareClear, Run: runClear},
		{Name: build, Declare: declareBuild, Run: runBuild},
		{Name: probe, Declare: declareProbe, Run: runProbe},
	}
}

const (
	wordBytes = 4
	// maxProbes bounds a search. Tables that are at most half full need a few
	// dozen, unless somebody chose keys that collide.
	maxProbes = 1024
)

// clear(table, n) empties a hash table of n words.
func declareClear(a sim.Args) []sim.Range {
	return []sim.Range{sim.Writes(a.Ptr(0), wordBytes*uint64(a.U32(1)))}
}

func runClear(x *sim.Exec) {
	table := sim.WriteSlice[uint32](x, x.Args().Ptr(0), int(x.Args().U32(1)))
	for i := range table {
		table[i] = NoPartner
	}
}

// build(keys, values, table, n, mask) inserts unique keys, with linear probing.
func declareBuild(a sim.Args) []sim.Range {
	n := wordBytes * uint64(a.U32(3))
	return []sim.Range{sim.Reads(a.Ptr(0), n), sim.Reads(a.Ptr(1), n), sim.ReadWrites(a.Ptr(2), tableBytes(a.U32(4)))}
}

func tableBytes(mask uint32) uint64 { return wordBytes * SlotWords * (uint64(mask) + 1) }

func runBuild(x *sim.Exec) {
	a := x.Args()
	n, mask := int(a.U32(3)), a.U32(4)
	keys, values := sim.ReadSlice[uint32](x, a.Ptr(0), n), sim.ReadSlice[uint32](x, a.Ptr(1), n)
	table := sim.ReadWriteSlice[uint32](x, a.Ptr(2), SlotWords*int(mask+1))
	for i, k := range keys {
		for try := range uint32(maxProbes) {
			slot := SlotWords * ((hash(k) + try) & mask)
			if table[slot] == NoPartner {
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
	keys, table := sim.ReadSlice[uint32](x, a.Ptr(0), n), sim.ReadSlice[uint32](x, a.Ptr(1), SlotWords*int(mask+1))
	joined := sim.WriteSlice[uint32](x, a.Ptr(2), n)
	for i, k := range keys {
		joined[i] = NoPartner
		for try := range uint32(maxProbes) {
			slot := SlotWords * ((hash(k) + try) & mask)
			if table[slot] == k {
				joined[i] = table[slot+1]
			}
			if table[slot] == k || table[slot] == NoPartner {
				break
			}
		}
	}
}

func hash(k uint32) uint32 {
	k *= 0x9e3779b1
	return k ^ k>>15
}
