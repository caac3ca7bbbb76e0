// Package readings has what the streams and the memory of a backend are read as, beyond
// core.Stats: for metrics and displays. The values share nothing and call no device.
package readings

import (
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// StreamStats is a snapshot of a pool of streams.
type StreamStats struct {
	// Max is the capacity; Total the streams made, of which Leased and Idle.
	Max, Total, Leased, Idle int
	// Adopted are the caller's streams under an id.
	Adopted int
	// Waiting is the number of callers that wait for a lease now.
	Waiting int
	// Acquires counts leases granted, Waits those that had to wait for a
	// stream or for one to be made, and Refused those that were not granted.
	Acquires, Waits, Refused int64
	// WaitTime is the sum of all waits for a lease.
	WaitTime time.Duration
	// OldestAge and OldestTag are of the longest lease held; zero if none.
	OldestAge time.Duration
	OldestTag core.Tag
	// Events are the driver events in existence.
	Events int
}

// StreamInfo is what the runtime knows of one physical stream.
type StreamInfo struct {
	// Number tells the streams of a pool apart; another stream may have it when
	// this one is gone.
	Number int
	// Lease is the lease on the stream; nil if there is none. The default stream needs
	// none.
	Lease *LeaseInfo
	// Default is the legacy default stream.
	Default bool
	// Busy: a call of the driver's is under way on the stream, so Seq, After
	// and Last are not known.
	Busy bool
	// Seq is the number of the stream's newest event, Completed that of the
	// newest which the device is known to have completed.
	Seq, Completed uint64
	// After is up to which event of other streams everything that is enqueued
	// from now on is ordered; streams of which it is none are left out.
	After []StreamPoint
	// Last is the newest launch that was finished; its LaunchID is zero if
	// there is none.
	Last core.UseRecord
	// OpenLaunches are launches prepared and not ended, PendingFrees the frees
	// that the device is not known to have completed, and PendingBytes theirs.
	OpenLaunches, PendingFrees, PendingBytes uint64
	// Launches, WaitsQueued and WaitsElided count since the stream was made.
	// Adopted streams are counted together: each of them has the sums.
	Launches, WaitsQueued, WaitsElided uint64
	// Capturing: a CUDA graph is being captured on it, through its lease.
	Capturing bool
}

// StreamPoint is a place in the order of the stream of that number.
type StreamPoint struct {
	Number int    `json:"number"`
	Seq    uint64 `json:"seq"`
}

// LeaseInfo describes one lease that is held.
type LeaseInfo struct {
	ID    core.StreamID
	Tag   core.Tag
	Since time.Time
	// Stack is where it was acquired: the innermost 8 frames.
	Stack core.Stack
	// Adopted says that the stream is the caller's.
	Adopted bool
}

// WindowPeak is the most memory that a device had during a window of time.
type WindowPeak struct {
	// Length is that of the window, in whole seconds. It begins at a multiple of it since
	// 1970.
	Length time.Duration
	// Live is the highest live bytes, without what a guard withholds, and
	// Outstanding the highest of live, pending and quarantined bytes together.
	Live, Outstanding uint64
}

// Drift is what the books say that a pool has handed out less what the pool says.
type Drift struct {
	// Bytes is the difference: zero, or there is a bug, or something works around the
	// runtime.
	Bytes int64
	// Known is false if nothing could be compared: no moment was quiet enough, or there is
	// no pool. Bytes is zero then.
	Known bool
}

// MemoryLimit is a limit that others set on the memory that this process takes of the device.
type MemoryLimit struct {
	// Source is who sets it: "cgroup" (the controller dmem), "nvml" (a control group's limit as the
	// driver's NVML tells it) or "mps".
	Source string `json:"source"`
	// Name is where it was read: a file, the folder of a control group, or a variable of the environment.
	Name string `json:"name"`
	// Bytes is the limit, and Used what counts against it: of all processes of a control group, as far
	// as that is told, and at least what the runtime holds.
	Bytes uint64 `json:"bytes"`
	Used  uint64 `json:"used_bytes"`
	// Allowed is how many bytes of the device the runtime may hold by it, in all: what it holds, and
	// what is not used of the limit, less 256 MiB, or a 32nd of the limit, for what the driver takes.
	Allowed uint64 `json:"allowed_bytes"`
}
