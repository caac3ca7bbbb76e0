package workline

import (
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// Job is what a record of an OpJob has beside its time, duration, tag and peak.
type Job struct {
	RequestedSeconds  float64 `json:"requested_seconds"`
	ByteSeconds       float64 `json:"byte_seconds"`
	Requested         uint64  `json:"allocated_requested"`
	Bytes             uint64  `json:"allocated_bytes"`
	Blocks            uint64  `json:"allocated_blocks"`
	Reserved          uint64  `json:"reserved,omitempty"`
	UnusedByteSeconds float64 `json:"unused_byte_seconds,omitempty"`
	Predicted         uint64  `json:"predicted,omitempty"`
	ForMemory         int64   `json:"waited_for_memory_ns"`
	ForStream         int64   `json:"waited_for_stream_ns"`
	OnDevice          int64   `json:"waited_on_device_ns"`
	Launches          uint64  `json:"launches"`
	Timed             uint64  `json:"timed_launches"`
}

// OfJob is the line of a job.
func OfJob(a *core.JobAccount) Job {
	return Job{a.RequestedSeconds, a.ByteSeconds, a.Allocated.Requested, a.Allocated.Bytes, a.Allocated.Blocks, a.Reserved, a.UnusedByteSeconds, a.Predicted,
		a.WaitedForMemory.Nanoseconds(), a.WaitedForStream.Nanoseconds(), a.WaitedOnDevice.Nanoseconds(), a.Launches, a.TimedLaunches}
}

// Account is what the line and the event that has it say.
func (l *Job) Account(e *oplog.Event) *core.JobAccount {
	return &core.JobAccount{
		Peak:      core.Peak{Requested: e.Requested, Bytes: e.Bytes, RequestedSeconds: l.RequestedSeconds, ByteSeconds: l.ByteSeconds, Elapsed: e.Duration},
		Allocated: core.Amount{Requested: l.Requested, Bytes: l.Bytes, Blocks: l.Blocks}, Reserved: l.Reserved, UnusedByteSeconds: l.UnusedByteSeconds, Predicted: l.Predicted,
		WaitedForMemory: time.Duration(l.ForMemory), WaitedForStream: time.Duration(l.ForStream), WaitedOnDevice: time.Duration(l.OnDevice),
		Launches: l.Launches, TimedLaunches: l.Timed,
	}
}
