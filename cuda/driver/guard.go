package driver

// The guard's kernels, which every driver must be able to load under
// [GuardImage]. Both take the device address of a table of n records of
// [GuardRecord] bytes and n as a 32-bit number:
//
//	fencepost_fill(table, n)           fills each region
//	fencepost_verify(table, results, n) compares each region
//
// A record is three little-endian 64-bit words: address, length in bytes,
// pattern, and one word that the kernels leave alone. The pattern repeats from
// the region's start. Verify writes a record of [GuardRecord] bytes for each
// region to results: the offset of the first differing byte
// ([GuardNoMismatch] if none), the number of differing bytes, and the expected
// and seen value of the first in the low two bytes of the third word. Table
// and results are aligned to 16 bytes; they may lie in page-locked host memory.
//
// Each [GuardThreads] threads of a block work on one region at a time, so a
// block must be a multiple of that. Any number of blocks will do.
const (
	GuardImage        = "fencepost.guard"
	GuardFillKernel   = "fencepost_fill"
	GuardVerifyKernel = "fencepost_verify"
	// GuardRecord is the size of a record in bytes.
	GuardRecord = 32
	// GuardThreads is the number of threads for one region.
	GuardThreads = 32
	// GuardNoMismatch is the offset of a region that is as expected.
	GuardNoMismatch = ^uint64(0)
)
