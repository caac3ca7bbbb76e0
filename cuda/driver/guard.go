package driver

import "time"

// The guard's kernels, which every driver must be able to load under
// [GuardImage]. Three take the device address of a table of n records of
// [GuardRecord] bytes and n as a 32-bit number:
//
//	fencepost_fill(table, n)              fills each region
//	fencepost_verify(table, results, n)   compares each region
//	fencepost_checksum(table, results, n) sums each region up
//	fencepost_fill_few(address, bytes, pattern, ...) fills [GuardFew] regions
//	fencepost_delay(ns)                   does nothing for so long
//
// A record is three little-endian 64-bit words: address, length in bytes,
// pattern, and one word that the kernels leave alone. The pattern repeats from
// the region's start. Verify writes a record of [GuardRecord] bytes to results
// for each region that differs: the offset of the first differing byte, the
// number of differing bytes, and the expected and seen value of the first in
// the low two bytes of the third word. It leaves the others' records alone, so
// the caller sets their first word to [GuardNoMismatch] before. Table
// and results are aligned to 16 bytes; they may lie in page-locked host memory.
//
// The regions that come as arguments, each three 64-bit ones, need no table;
// those that are not needed have no bytes. All threads of the launch fill them
// together, so a large one wants many.
//
// For checksums the record's third word is no pattern but the offset, a
// multiple of 8, at which the region begins in a larger one. The first word of
// a result is the sum, modulo 2^64, over the region's little-endian 64-bit
// words, zeros behind its end, of [GuardMix] of the word and its number in the
// larger region. The sums of its pieces so add up to that of the larger one.
//
// Each [GuardThreads] threads of a block work on one region at a time, so a
// block must be a multiple of that. Any number of blocks will do. A delay takes
// one thread. It lasts [GuardLongestDelay] at most; the simulated device makes
// it shorter.
const (
	GuardImage          = "fencepost.guard"
	GuardFillKernel     = "fencepost_fill"
	GuardFillFewKernel  = "fencepost_fill_few"
	GuardVerifyKernel   = "fencepost_verify"
	GuardChecksumKernel = "fencepost_checksum"
	GuardDelayKernel    = "fencepost_delay"
	// GuardRecord is the size of a record in bytes.
	GuardRecord = 32
	// GuardFew is how many regions fencepost_fill_few takes.
	GuardFew = 4
	// GuardThreads is the number of threads for one region.
	GuardThreads = 32
	// GuardNoMismatch is the offset of a region that is as expected.
	GuardNoMismatch = ^uint64(0)
	// GuardLongestDelay is where a delay ends, whatever was asked for.
	GuardLongestDelay = time.Second
)

// GuardMix is what a word at a position, counted in words, adds to a checksum.
// For one position it is a bijection: no change of a single word goes unseen.
func GuardMix(word, position uint64) uint64 {
	x := word ^ (position+1)*0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
