package kernels

import "github.com/fencepost-gpu/fencepost/cuda/sim"

// countBytes is the size of the counters for n rows: those of a digit for
// all slices lie side by side.
func countBytes(n uint32) uint64 { return wordBytes * digits * uint64(Slices(int(n))) }

// histogram(keys, counts, n, shift) counts the digits of each slice's keys.
func declareHistogram(a sim.Args) []sim.Range {
	return []sim.Range{sim.Reads(a.Ptr(0), wordBytes*uint64(a.U32(2))), sim.Writes(a.Ptr(1), countBytes(a.U32(2)))}
}

func runHistogram(x *sim.Exec) {
	a := x.Args()
	n, shift := int(a.U32(2)), a.U32(3)
	slices := Slices(n)
	keys, counts := sim.ReadSlice[uint32](x, a.Ptr(0), n), sim.WriteSlice[uint32](x, a.Ptr(1), digits*slices)
	clear(counts)
	for s := range slices {
		for _, k := range Slice(keys, s) {
			counts[int(k>>shift%digits)*slices+s]++
		}
	}
}

// scan(counts, n) turns n counts into offsets.
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
	return []sim.Range{sim.Reads(a.Ptr(0), n), sim.Reads(a.Ptr(1), n), sim.Writes(a.Ptr(2), n), sim.Writes(a.Ptr(3), n),
		sim.Reads(a.Ptr(4), countBytes(a.U32(5)))}
}

func runScatter(x *sim.Exec) {
	a := x.Args()
	n, shift := int(a.U32(5)), a.U32(6)
	slices := Slices(n)
	keys, values := sim.ReadSlice[uint32](x, a.Ptr(0), n), sim.ReadSlice[uint32](x, a.Ptr(1), n)
	toKeys, toValues := sim.WriteSlice[uint32](x, a.Ptr(2), n), sim.WriteSlice[uint32](x, a.Ptr(3), n)
	offsets := sim.ReadSlice[uint32](x, a.Ptr(4), digits*slices)
	for s := range slices {
		var next [digits]uint32
		for digit := range next {
			next[digit] = offsets[digit*slices+s]
		}
		values := Slice(values, s)
		for i, k := range Slice(keys, s) {
			digit := k >> shift % digits
			if at := int(next[digit]); at < n { // unfenced offsets may be anything
				toKeys[at], toValues[at] = k, values[i]
			}
			next[digit]++
		}
	}
}
