package drivertest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/guardkernels"
)

// guardSeed makes the patterns and the planted differences.
const guardSeed = 42

// guardRegion is a region of the suite's block, and the offsets in it of the
// bytes that will be spoilt.
type guardRegion struct {
	at, bytes, pattern uint64
	spoilt             []uint64
}

// plants are the ways to spoil a region of n bytes, not empty.
var plants = []func(rng *rand.Rand, n uint64) []uint64{
	func(*rand.Rand, uint64) []uint64 { return nil },
	func(*rand.Rand, uint64) []uint64 { return []uint64{0} },
	func(_ *rand.Rand, n uint64) []uint64 { return []uint64{n / 2} },
	func(_ *rand.Rand, n uint64) []uint64 { return []uint64{n - 1} },
	func(rng *rand.Rand, n uint64) (several []uint64) {
		for range 5 {
			several = append(several, rng.Uint64N(n))
		}
		return several
	},
}

// guardRegions are regions of many lengths at every alignment, spoilt in every
// way, with room between them, and the number of bytes that they lie in.
func guardRegions(rng *rand.Rand) (regions []guardRegion, total uint64) {
	lengths := []uint64{255, 4096 + 3}
	for n := range uint64(41) {
		lengths = append(lengths, n)
	}
	add := func(alignment, n uint64, plant func(*rand.Rand, uint64) []uint64) {
		r := guardRegion{at: total + 16 + alignment, bytes: n, pattern: rng.Uint64()}
		if n > 0 {
			r.spoilt = plant(rng, n)
		}
		regions = append(regions, r)
		total = (r.at + n + 31) &^ 15
	}
	for _, plant := range plants {
		for alignment := range uint64(16) {
			for _, n := range lengths {
				add(alignment, n, plant)
			}
		}
	}
	add(7, 1<<20+5, plants[len(plants)-1])
	return regions, total
}

// guardKernels fills the regions, spoils some and verifies them all, with
// grids from a single warp up.
func (s *suite) guardKernels() {
	st := s.stream()
	m, err := s.d.ModuleLoad(guardkernels.Image())
	s.must(err)
	regions, total := guardRegions(rand.New(rand.NewPCG(guardSeed, 0)))
	block := s.alloc(total, st)
	table := s.guardTable(block, regions)
	results, err := s.d.HostAlloc(uint64(len(table.Bytes)))
	s.must(err)
	sums := s.guardTable(block, regions)
	for i, r := range regions { // as if each began somewhere in a larger region
		binary.LittleEndian.PutUint64(sums.Bytes[i*driver.GuardRecord+16:], r.at*8)
	}
	n := driver.U32(uint32(len(regions)))
	shapes := [][2]uint32{{7, 96}, {1, 32}, {512, 256}}
	if testing.Short() { // the bytes are many, and a simulated kernel has no shape
		shapes = shapes[:1]
	}
	for _, shape := range shapes {
		s.must(s.d.MemsetAsync(block, 0xa5, total, st))
		s.launch(m, driver.GuardFillKernel, st, shape, driver.Ptr(table.DevicePtr), n)
		got := s.read(block, total, st)
		s.wantFilled(got, regions)
		spoil(got, regions)
		s.must(s.d.CopyToDeviceAsync(block, got, st))
		s.presetResults(results)
		s.launch(m, driver.GuardVerifyKernel, st, shape, driver.Ptr(table.DevicePtr), driver.Ptr(results.DevicePtr), n)
		s.must(s.d.StreamSynchronize(st))
		for i, r := range regions {
			s.wantResult(r, got[r.at:][:r.bytes], results.Bytes[i*driver.GuardRecord:][:driver.GuardRecord])
		}
		clear(results.Bytes)
		s.guardSums(m, st, shape, guardSumming{bytes: got, regions: regions, table: sums, results: results})
		clear(results.Bytes)
	}
	s.guardFew(m, st, block, regions, total)
	s.launch(m, driver.GuardDelayKernel, st, [2]uint32{1, 1}, driver.U64(1000))
	s.must(s.d.MemFreeAsync(block, st))
	s.must(s.d.StreamSynchronize(st))
	s.must(s.d.HostFree(table))
	s.must(s.d.HostFree(results))
	s.must(s.d.HostFree(sums))
	s.must(s.d.ModuleUnload(m))
}

// presetResults writes that nothing differs, as who asks for a comparison must.
func (s *suite) presetResults(results driver.HostMemory) {
	for at := 0; at < len(results.Bytes); at += driver.GuardRecord {
		binary.LittleEndian.PutUint64(results.Bytes[at:], driver.GuardNoMismatch)
	}
}

// guardFew fills the regions with the kernel that takes a few as arguments: the
// last launch has fewer, and the large region is in it.
func (s *suite) guardFew(m driver.Module, st driver.Stream, block uint64, regions []guardRegion, total uint64) {
	s.Helper()
	for _, shape := range [][2]uint32{{1, 32}, {7, 96}, {64, 256}} {
		s.must(s.d.MemsetAsync(block, 0xa5, total, st))
		for some := range slices.Chunk(regions, driver.GuardFew) {
			args := make([]driver.Arg, 3*driver.GuardFew)
			for i := range args {
				args[i] = driver.U64(0)
			}
			for i, r := range some {
				copy(args[3*i:], []driver.Arg{driver.Ptr(block + r.at), driver.U64(r.bytes), driver.U64(r.pattern)})
			}
			s.launch(m, driver.GuardFillFewKernel, st, shape, args...)
		}
		s.wantFilled(s.read(block, total, st), regions)
	}
}

func (s *suite) guardTable(block uint64, regions []guardRegion) driver.HostMemory {
	s.Helper()
	table, err := s.d.HostAlloc(uint64(len(regions) * driver.GuardRecord))
	s.must(err)
	for i, r := range regions {
		for word, v := range [...]uint64{block + r.at, r.bytes, r.pattern, uint64(i)} {
			binary.LittleEndian.PutUint64(table.Bytes[i*driver.GuardRecord+8*word:], v)
		}
	}
	return table
}

// guardSumming is what the checksums are asked of.
type guardSumming struct {
	bytes          []byte
	regions        []guardRegion
	table, results driver.HostMemory
}

// guardSums requires that the device sums up as the contract says.
func (s *suite) guardSums(m driver.Module, st driver.Stream, shape [2]uint32, g guardSumming) {
	s.Helper()
	s.launch(m, driver.GuardChecksumKernel, st, shape, driver.Ptr(g.table.DevicePtr), driver.Ptr(g.results.DevicePtr), driver.U32(uint32(len(g.regions))))
	s.must(s.d.StreamSynchronize(st))
	for i, r := range g.regions {
		var want uint64
		for at := uint64(0); at < r.bytes; at += 8 {
			var word uint64
			for k := range min(8, r.bytes-at) {
				word |= uint64(g.bytes[r.at+at+k]) << (8 * k)
			}
			want += driver.GuardMix(word, r.at+at/8)
		}
		if got := binary.LittleEndian.Uint64(g.results.Bytes[i*driver.GuardRecord:]); got != want {
			s.Fatalf("%d bytes at alignment %d sum up to %#x, want %#x (seed %d)", r.bytes, r.at%16, got, want, guardSeed)
		}
	}
}

// wanted is the byte of the region's pattern at an offset.
func (r guardRegion) wanted(offset uint64) byte { return byte(r.pattern >> (offset % 8 * 8)) }

// wantFilled requires that the regions are filled, and nothing else.
func (s *suite) wantFilled(got []byte, regions []guardRegion) {
	s.Helper()
	want := bytes.Repeat([]byte{0xa5}, len(got))
	for _, r := range regions {
		for i := range r.bytes {
			want[r.at+i] = r.wanted(i)
		}
	}
	for i := range want {
		if got[i] != want[i] {
			s.Fatalf("byte %d of %d is %#x after the filling, want %#x (seed %d)", i, len(got), got[i], want[i], guardSeed)
		}
	}
}

func spoil(block []byte, regions []guardRegion) {
	for i, r := range regions {
		for _, offset := range r.spoilt {
			block[r.at+offset] = r.wanted(offset) ^ byte(i%255+1)
		}
	}
}

// wantResult compares a result with what a look at the bytes says.
func (s *suite) wantResult(r guardRegion, block, result []byte) {
	s.Helper()
	want := [3]uint64{driver.GuardNoMismatch}
	for i, b := range block {
		if b == r.wanted(uint64(i)) {
			continue
		}
		if want[1]++; want[1] == 1 {
			want[0], want[2] = uint64(i), uint64(r.wanted(uint64(i)))|uint64(b)<<8
		}
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(result[8*i:]) }
	if want[1] == 0 && word(0) == driver.GuardNoMismatch {
		return // the rest has no owner
	}
	if got := [3]uint64{word(0), word(1), word(2) & 0xffff}; got != want {
		s.Errorf("%d bytes at alignment %d, spoilt at %d: offset, count and bytes are %#x, want %#x (seed %d)",
			r.bytes, r.at%16, r.spoilt, got, want, guardSeed)
	}
}

func (s *suite) launch(m driver.Module, name string, st driver.Stream, shape [2]uint32, args ...driver.Arg) {
	s.Helper()
	f, err := s.d.ModuleFunction(m, name)
	s.must(err)
	s.must(s.d.Launch(&driver.Launch{Function: f, Grid: driver.Dim{X: shape[0]}, Block: driver.Dim{X: shape[1]}, Stream: st, Args: args}))
}
