package sim

import (
	"bytes"
	"encoding/binary"
	"iter"
	"time"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// String names the kind of device, as resources print it.
func (d *Device) String() string { return "sim" }

// guardKernels are the kernels of driver.GuardImage, which every device has.
// A table may still be on its way when they are launched, so only the run
// knows the regions: those with one are Indirect.
func guardKernels() []Kernel {
	kernels := []Kernel{{
		Name: driver.GuardFillKernel, Run: runFill, Indirect: true,
		Declare: func(a Args) []Range {
			return []Range{Reads(a.Ptr(0), tableBytes(a.U32(1)))}
		},
	}, {
		Name: driver.GuardFillFewKernel, Run: runFillFew, Declare: declareFew,
	}, {
		Name: driver.GuardVerifyKernel, Run: runVerify, Indirect: true,
		Declare: func(a Args) []Range {
			return []Range{Reads(a.Ptr(0), tableBytes(a.U32(2))), Writes(a.Ptr(1), tableBytes(a.U32(2)))}
		},
	}, {
		Name: driver.GuardChecksumKernel, Run: runChecksum, Indirect: true,
		Declare: func(a Args) []Range {
			return []Range{Reads(a.Ptr(0), tableBytes(a.U32(2))), Writes(a.Ptr(1), tableBytes(a.U32(2)))}
		},
	}, {Name: driver.GuardDelayKernel, Run: runDelay}}
	for i := range kernels {
		kernels[i].guard = true
	}
	return kernels
}

func tableBytes(records uint32) uint64 { return uint64(records) * driver.GuardRecord }

// region is one record of a guard's table.
type region struct{ ptr, bytes, pattern uint64 }

// regions are those of the table that is a launch's first argument.
func regions(x *Exec, records uint32) iter.Seq2[int, region] {
	table := x.Read(x.Args().Ptr(0), tableBytes(records))
	return func(yield func(int, region) bool) {
		for i := range int(records) {
			r := table[i*driver.GuardRecord:]
			if !yield(i, region{binary.LittleEndian.Uint64(r), binary.LittleEndian.Uint64(r[8:]), binary.LittleEndian.Uint64(r[16:])}) {
				return
			}
		}
	}
}

// few are the regions among a launch's arguments.
func few(a Args) (given []region) {
	for i := range driver.GuardFew {
		if r := (region{a.Ptr(3 * i), a.U64(3*i + 1), a.U64(3*i + 2)}); r.bytes > 0 {
			given = append(given, r)
		}
	}
	return given
}

func declareFew(a Args) (ranges []Range) {
	for _, r := range few(a) {
		ranges = append(ranges, Writes(r.ptr, r.bytes))
	}
	return ranges
}

func runFillFew(x *Exec) {
	for _, r := range few(x.Args()) {
		fillPattern(x.Write(r.ptr, r.bytes), r.pattern)
	}
}

func runFill(x *Exec) {
	for _, r := range regions(x, x.Args().U32(1)) {
		fillPattern(x.Write(r.ptr, r.bytes), r.pattern)
	}
}

func fillPattern(b []byte, pattern uint64) {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], pattern)
	repeat(b, copy(b, word[:]))
}

func runVerify(x *Exec) {
	n := x.Args().U32(2)
	results := x.Write(x.Args().Ptr(1), tableBytes(n))
	for i, r := range regions(x, n) {
		verifyPattern(x.Read(r.ptr, r.bytes), r.pattern, results[i*driver.GuardRecord:][:driver.GuardRecord])
	}
}

// verifyPattern compares b with the pattern and writes the result's record if
// it differs. It goes by parts: one copy is one access of the memory for the race
// detector, which a word at a time would keep busy.
func verifyPattern(b []byte, pattern uint64, result []byte) {
	var want, got [256]byte
	fillPattern(want[:min(len(b), len(want))], pattern)
	first, bad := 0, 0
	for at := 0; at < len(b); at += len(got) {
		part := got[:copy(got[:], b[at:])]
		if bytes.Equal(part, want[:len(part)]) {
			continue
		}
		for i, is := range part {
			if is == want[i] {
				continue
			}
			if bad++; bad == 1 {
				first = at + i
				clear(result)
				result[16], result[17] = want[i], is
			}
		}
	}
	if bad == 0 {
		return
	}
	binary.LittleEndian.PutUint64(result, uint64(first))
	binary.LittleEndian.PutUint64(result[8:], uint64(bad))
}

func runChecksum(x *Exec) {
	n := x.Args().U32(2)
	results := x.Write(x.Args().Ptr(1), tableBytes(n))
	clear(results)
	for i, r := range regions(x, n) {
		binary.LittleEndian.PutUint64(results[i*driver.GuardRecord:], checksum(x.Read(r.ptr, r.bytes), r.pattern))
	}
}

// checksum sums b up, which begins at an offset in a larger region.
func checksum(b []byte, offset uint64) (sum uint64) {
	position := offset / 8
	for ; len(b) >= 8; b, position = b[8:], position+1 {
		sum += driver.GuardMix(binary.LittleEndian.Uint64(b), position)
	}
	if len(b) > 0 {
		var word [8]byte
		copy(word[:], b)
		sum += driver.GuardMix(binary.LittleEndian.Uint64(word[:]), position)
	}
	return sum
}

// longestSimDelay keeps simulated programs quick: a stream that yields for a
// moment is late enough for the others, which do not wait for hardware.
const longestSimDelay = 20 * time.Microsecond

// runDelay holds its stream up. A seeded schedule may put any operation in
// front of any other without it, and runs kernels one at a time.
func runDelay(x *Exec) {
	if x.d.chooser == nil {
		time.Sleep(min(time.Duration(min(x.Args().U64(0), uint64(driver.GuardLongestDelay))), longestSimDelay))
	}
}
