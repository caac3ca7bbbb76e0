package kernels

import "github.com/fencepost-gpu/fencepost/cuda/sim"

// maxProbes bounds a search. Tables that are at most half full need a few dozen,
// unless a client chose keys that collide, or a missing fence has filled the table
// with anything.
const maxProbes = 1024

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

// filter(values, joined, kept, counts, n, below) keeps the values of the rows
// whose partner's value is below a bound, at the beginning of each slice, and
// counts them.
func declareFilter(a sim.Args) []sim.Range {
	n := a.U32(4)
	return []sim.Range{sim.Reads(a.Ptr(0), wordBytes*uint64(n)), sim.Reads(a.Ptr(1), wordBytes*uint64(n)),
		sim.Writes(a.Ptr(2), wordBytes*uint64(n)), sim.Writes(a.Ptr(3), wordBytes*uint64(Slices(int(n))))}
}

func runFilter(x *sim.Exec) {
	a := x.Args()
	n, below := int(a.U32(4)), a.U32(5)
	values, joined := sim.ReadSlice[uint32](x, a.Ptr(0), n), sim.ReadSlice[uint32](x, a.Ptr(1), n)
	kept, counts := sim.WriteSlice[uint32](x, a.Ptr(2), n), sim.WriteSlice[uint32](x, a.Ptr(3), Slices(n))
	for s := range counts {
		values, joined, kept := Slice(values, s), Slice(joined, s), Slice(kept, s)
		counts[s] = 0
		for i, v := range values {
			if joined[i] < below {
				kept[counts[s]] = v
				counts[s]++
			}
		}
	}
}
