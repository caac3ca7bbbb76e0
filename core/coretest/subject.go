package coretest

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// Subject is a resource under test and what the suite must know of it. Each
// case opens a fresh one.
type Subject struct {
	// Resource is the backend or stack to test, with nothing allocated.
	// Required.
	Resource core.Resource
	// Features is what Resource is expected to say of itself. It is
	// required, because the suite adapts to it: a resource that forgot how
	// to track uses would otherwise pass by having nothing tested.
	Features core.Features
	// Streams leases another stream and gives it back at t's cleanup.
	// Required.
	Streams func(t testing.TB) core.StreamID
	// Device touches the bytes of blocks. Nil if there are none; the cases
	// that need it are then skipped by name.
	Device Device
	// Capacity is the device's memory and Budget the limit of the stack, in
	// bytes; zero if there is none. Cases that need more are skipped.
	Capacity, Budget uint64
	// MaxBlock bounds the sizes that are asked for and expected to succeed, for
	// subjects on which large blocks are dear; zero means a gibibyte.
	MaxBlock uint64
	// FailNextFree makes the device fail the next free with some error. Nil
	// if that cannot be arranged; the case is then skipped by name.
	FailNextFree func()
}

// Device reaches the bytes of a device for the suite. Its operations are
// enqueued raw: the suite itself prepares and finishes the uses. None of them
// may block on the device, except Sync.
type Device interface {
	// Write enqueues the writing of src at ptr. src is copied before it
	// returns.
	Write(stream core.StreamID, ptr uint64, src []byte) error
	// Read enqueues the reading of len(dst) bytes at ptr. dst is filled when
	// a later Sync of the stream has returned.
	Read(stream core.StreamID, ptr uint64, dst []byte) error
	// Stall holds back what is enqueued on stream from now on, until release
	// is called. release may be called more than once.
	Stall(stream core.StreamID) (release func())
	// Sync blocks until all work of stream is done.
	Sync(stream core.StreamID) error
}
