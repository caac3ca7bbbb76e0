package core

import (
	"context"
	"time"
)

// DeviceOps is what a guard needs of a device. All of it is enqueued raw:
// the caller prepares and finishes the uses of the blocks it touches, like
// any other launch. An error marked with [NotEnqueued] says that nothing was
// enqueued; any other may be that of work under way. It is safe for concurrent
// use.
//
// A region is filled with, and compared to, an 8-byte pattern that repeats
// from the region's start in little-endian order; Ptr and Bytes need no
// alignment.
type DeviceOps interface {
	// Fill enqueues on stream the filling of all regions. The slice is not
	// kept.
	Fill(ctx context.Context, stream StreamID, regions []Region) error
	// Verify enqueues on stream the comparison of all regions in one batch.
	// The slice is not kept.
	Verify(ctx context.Context, stream StreamID, regions []Region) (Verification, error)
	// Checksum enqueues on stream the summing up of all regions in one batch;
	// their patterns are ignored. Equal bytes have equal sums, wherever they
	// lie; bytes that differ in one aligned word of 8 never have, others only
	// by a chance of 2^-64. The slice is not kept.
	Checksum(ctx context.Context, stream StreamID, regions []Region) (Checksums, error)
	// Delay enqueues on stream work that does nothing for about d, less if
	// that is more than the device lets wait.
	Delay(ctx context.Context, stream StreamID, d time.Duration) error
	// Synchronize blocks until all work of stream is done or ctx ends.
	Synchronize(ctx context.Context, stream StreamID) error
}

// Region is a range of device memory and the pattern it holds.
type Region struct {
	// Ptr is the first address, Bytes the length.
	Ptr, Bytes uint64
	Pattern    uint64
}

// Verification is a batch of comparisons under way. Its methods are safe for
// concurrent use.
type Verification interface {
	// Poll reports whether the device has done the batch. It does not block.
	Poll() (done bool, err error)
	// Wait blocks until it has, or ctx ends.
	Wait(ctx context.Context) error
	// Mismatches returns the regions that differ, in order. It may be called
	// once, after the batch was done; it gives the batch's memory back.
	Mismatches() ([]Mismatch, error)
	// Discard gives the batch's memory back as soon as the device is done
	// with it, for a caller that does not want the result.
	Discard()
}

// Checksums is a batch of checksums under way. Its methods are safe for
// concurrent use.
type Checksums interface {
	// Poll reports whether the device has done the batch. It does not block.
	Poll() (done bool, err error)
	// Wait blocks until it has, or ctx ends.
	Wait(ctx context.Context) error
	// Sums returns the sum of each region, in order. It may be called once,
	// after the batch was done; it gives the batch's memory back.
	Sums() ([]uint64, error)
	// Discard gives the batch's memory back as soon as the device is done
	// with it, for a caller that does not want the result.
	Discard()
}

// Mismatch is a region whose bytes changed.
type Mismatch struct {
	// Region is its index in the batch.
	Region int
	// Offset is that of the first changed byte in the region, BadBytes the
	// number of changed bytes.
	Offset, BadBytes uint64
	// Expected and Seen are the values of the first changed byte.
	Expected, Seen byte
}
