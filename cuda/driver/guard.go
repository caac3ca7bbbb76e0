package driver

// The guard's kernels, which every driver must be able to load under
// [GuardImage]. Both take the device address of a table of n records of
// [GuardRecord] bytes and n as a 32-bit number:
//
//	fencepost_fill(table, n)           fills each region
//	fencepost_verify(table, results, n) compares each region
//
// A record is three little-endian 64-bit words: address, length in bytes,
// pattern, and one word unused. The pattern repeats from the region's start.
// Verify writes a record of [GuardRecord] bytes for each region to results:
// the offset of the first differing byte ([GuardNoMismatch] if none), the
// number of differing bytes, and the expected and seen value of the first in
// the low two bytes of the third word.
const (
	GuardImage        = "fencepost.guard"
	GuardFillKernel   = "fencepost_fill"
	GuardVerifyKernel = "fencepost_verify"
	// GuardRecord is the size of a record in bytes.
	GuardRecord = 32
	// GuardNoMismatch is the offset of a region that is as expected.
	GuardNoMismatch = ^uint64(0)
)
