package core

import "time"

// Amount is a quantity of memory.
type Amount struct {
	// Bytes is what was asked of the layer below, padding included.
	Bytes uint64
	// Requested is what the outermost callers asked for, in bytes.
	Requested uint64
	Blocks    uint64
}

// Add returns the sum of two amounts.
func (a Amount) Add(b Amount) Amount {
	return Amount{a.Bytes + b.Bytes, a.Requested + b.Requested, a.Blocks + b.Blocks}
}

// Sub returns a-b, with each field stopping at zero.
func (a Amount) Sub(b Amount) Amount {
	return Amount{a.Bytes - min(a.Bytes, b.Bytes), a.Requested - min(a.Requested, b.Requested), a.Blocks - min(a.Blocks, b.Blocks)}
}

// Stats is a snapshot of a resource, as seen from the layer that answers.
// Counters only grow; all sizes are bytes.
type Stats struct {
	// Live is allocated and not given back. Pending is given back and not
	// yet passed by the device. Quarantined is held by a guard.
	Live, Pending, Quarantined Amount
	// PeakRequested is the highest Live.Requested since the beginning, PeakBytes the highest
	// Live.Bytes: what a guard withholds is in neither. Each is exact with up to 64 streams and one
	// goroutine; else it is the truth at least, and more by a 64th of it or by 32 MiB at most.
	// PeakOutstanding is the highest Outstanding().Bytes. A later, lower peak of a stretch of time
	// or of some blocks is that of an [Account] or of a runtime's Measure.
	PeakRequested, PeakBytes, PeakOutstanding uint64

	// Claims is the number of open reservations and Claimed their unspent
	// bytes.
	Claims, Claimed uint64
	// Limit is the budget, zero if there is none. Charged is what counts
	// against it.
	Limit, Charged uint64
	// Reserved is what the pool holds of the device and PoolUsed what it has handed
	// out, with the highest that each has been; Cached is the part of Reserved that is
	// in no block. Of a pool of the driver's they are as last read by the
	// reaper. Of a pool of the runtime's own they are as of now, PoolUsed is at the sizes
	// that were asked for, and PoolUsedHigh is sampled: the highest that was read.
	Reserved, PoolUsed, Cached uint64
	ReservedHigh, PoolUsedHigh uint64
	// HeldLimit is what pool and isolated blocks may hold of the device together, zero if nothing
	// bounds it: see cuda.PoolResource.SetShare. Above it is what was held when it was lowered, and
	// did not become free since, and what jobs with a reservation lacked.
	HeldLimit uint64
	// OwnPool is what a pool of the runtime's own says of itself, zero with every other
	// backend.
	OwnPool OwnPoolStats
	// Isolated is what is mapped of the device's memory for isolated blocks,
	// in units of [Inspector].IsolationGranularity, IsolatedHigh the most that
	// was. No pool has it: Reserved and PoolUsed leave it out, while Live and
	// Pending count the blocks at the size asked for. IsolatedAddresses is
	// address space that freed ones keep, with no memory there.
	Isolated, IsolatedHigh, IsolatedAddresses uint64

	// Allocations and Deallocations count successes, Failures the calls
	// that the driver failed, Refusals those that a budget refused.
	Allocations, Deallocations, Failures, Refusals uint64
	// MemoryWaits counts the requests that waited for the device to come to memory that was
	// freed, instead of being refused at once, MemoryWaitsServed those of them that got
	// theirs, and MemoryWaitTime the time that all of them took.
	MemoryWaits, MemoryWaitsServed uint64
	MemoryWaitTime                 time.Duration
	// AllocatedBytes is the bytes of all successful allocations so far, padding and what
	// a guard allocates for itself included.
	AllocatedBytes uint64
	// Launches counts finished uses, Aborts aborted ones. WaitsQueued and
	// WaitsElided count dependencies on other streams that needed a queued
	// wait and that needed none.
	Launches, Aborts, WaitsQueued, WaitsElided uint64
	// CrossStream counts launches that used a block last written on another
	// stream.
	CrossStream uint64
	// OpenIntents is the launches prepared and not ended, and the other work under
	// way on streams: copies and a guard's work without a launch, and uses that are being
	// recorded or wait for the end of a capture. Events is the driver events in existence, Poisoned the
	// blocks that could not be fenced.
	OpenIntents, Events, Poisoned uint64
	// FreeToReusable is the time from the request of a free to the moment at
	// which the runtime knew that the device had passed it, for each block
	// that was released. It is measured by the backend: a block that a guard
	// holds back is asked to be freed when the guard passes it inward.
	//
	// On a stream where nothing happens the backend learns of it up to two
	// reap intervals after the device: one look records an event behind the
	// frees, the next sees it passed. In order, on its own stream, the memory
	// may be in use again before either.
	FreeToReusable Durations
	// Underflows counts attempts to take a byte counter below zero. Any is
	// a bug in the accounting.
	Underflows uint64
}

// Outstanding is live, pending and quarantined memory together.
func (s Stats) Outstanding() Amount { return s.Live.Add(s.Pending).Add(s.Quarantined) }
