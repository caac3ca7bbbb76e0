// Package deviceops is what a guard needs of a device: to fill memory with a
// pattern, to compare it with one, and to sum it up. cuda.NewDeviceOps has the one
// implementation of this module; a guard or a backend outside it meets the other side
// here.
package deviceops

import (
	"context"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// Ops are the operations. All of it is enqueued raw: the caller prepares and
// finishes the uses of the blocks it touches, like any other launch. An error
// marked with [core.NotEnqueued] says that nothing was enqueued; any other may be
// that of work under way. It is safe for concurrent use.
//
// A region is filled with, and compared to, an 8-byte pattern that repeats
// from the region's start in little-endian order; Ptr and Bytes need no
// alignment.
type Ops interface {
	// Fill enqueues on stream the filling of all regions. It keeps no reference to
	// the slice.
	Fill(ctx context.Context, stream core.StreamID, regions []Region) error
	// Verify enqueues on stream the comparison of all regions in one batch. It keeps
	// no reference to the slice.
	Verify(ctx context.Context, stream core.StreamID, regions []Region) (Verification, error)
	// Checksum enqueues on stream the summing up of all regions in one batch;
	// their patterns are ignored. Equal bytes have equal sums, wherever they
	// lie; bytes that differ in one aligned word of 8 never have, others only
	// by a chance of 2^-64. It keeps no reference to the slice.
	Checksum(ctx context.Context, stream core.StreamID, regions []Region) (Checksums, error)
	// Delay enqueues on stream work that does nothing for about d, less if
	// that is more than the device lets wait.
	Delay(ctx context.Context, stream core.StreamID, d time.Duration) error
	// Synchronize blocks until all work of stream is done or ctx ends.
	Synchronize(ctx context.Context, stream core.StreamID) error
}

// Device is operations that must be closed.
type Device interface {
	Ops
	// Close waits for work under way until ctx ends, and gives back what the
	// operations need of the device.
	Close(ctx context.Context) error
}

// Region is a range of device memory and the pattern it has.
type Region struct {
	// Ptr is the first address, Bytes the length.
	Ptr, Bytes uint64
	Pattern    uint64
}

// Batch is a batch of operations under way. Its methods are safe for concurrent
// use.
type Batch interface {
	// Poll reports whether the device has done the batch. It does not block.
	Poll() (done bool, err error)
	// Wait blocks until it has, or ctx ends.
	Wait(ctx context.Context) error
	// Discard gives the batch's memory back as soon as the device is done
	// with it, for a caller that does not want the result.
	Discard()
}

// Verification is a batch of comparisons.
type Verification interface {
	Batch
	// Mismatches returns the regions that differ, in order. It may be called
	// once, after the batch was done; it gives the batch's memory back.
	Mismatches() ([]Mismatch, error)
}

// Checksums is a batch of checksums.
type Checksums interface {
	Batch
	// Sums returns the sum of each region, in order. It may be called once,
	// after the batch was done; it gives the batch's memory back.
	Sums() ([]uint64, error)
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
