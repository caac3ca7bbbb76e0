package alloctrace

import (
	"fmt"
	"time"
)

// Format is a file format of traces.
type Format uint8

// The formats.
const (
	// FormatRMM is the CSV of RMM's logging adaptor.
	FormatRMM Format = iota + 1
	// FormatLog is the JSON-lines log of Fencepost's logging decorator.
	FormatLog
)

// String returns "rmm-csv" or "fencepost-jsonl".
func (f Format) String() string {
	switch f {
	case FormatRMM:
		return "rmm-csv"
	case FormatLog:
		return "fencepost-jsonl"
	}
	return fmt.Sprintf("format(%d)", uint8(f))
}

// Action is what a row records.
type Action uint8

// The actions.
const (
	// Allocate is an allocation that succeeded.
	Allocate Action = iota + 1
	// Free is a block given back.
	Free
	// AllocateFailure is an allocation that was refused.
	AllocateFailure
)

// String returns the action as RMM spells it.
func (a Action) String() string {
	switch a {
	case Allocate:
		return "allocate"
	case Free:
		return "free"
	case AllocateFailure:
		return "allocate failure"
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}

// Row is one recorded operation.
type Row struct {
	// Line is the row's line in the file, counted from 1.
	Line int
	// Thread is the recording thread; logs of Fencepost have none.
	Thread uint64
	// Time is the offset from an origin that is the same for the whole
	// file: midnight or the start of the recording.
	Time   time.Duration
	Action Action
	// Pointer is the recorded address; zero is RMM's "(nil)".
	Pointer uint64
	// Bytes is the size that the program asked for, without any padding.
	Bytes uint64
	// Padded is what the device was asked for, with padding and red zones; zero if
	// that is not known.
	Padded uint64
	// Stream is the recorded stream number or handle.
	Stream uint64
	// PerThread says that Stream is the handle of the per-thread default
	// stream, which is another stream in each thread.
	PerThread bool
	// Tag and Generation are known in logs of Fencepost only.
	Tag        string
	Generation uint64
	// Error is what the log says of a failed allocation.
	Error string
	// Device is the device ordinal, zero where the format has none.
	Device int
}

// Key identifies the block of a row among the rows of one trace.
type Key struct {
	Device              int
	Pointer, Generation uint64
}

// Key is the block that the row concerns: the generation where the format has
// one, the pointer otherwise. Pointers are reused, so a key names a block only
// between its allocation and its free.
func (r Row) Key() Key {
	if r.Generation != 0 {
		return Key{Device: r.Device, Generation: r.Generation}
	}
	return Key{Device: r.Device, Pointer: r.Pointer}
}

// IsEmpty reports whether the row concerns no memory: it names no block, or a
// pointer with no bytes behind it. Allocators may return for no bytes what
// another block has, so such a row says nothing about the block at its pointer.
func (r Row) IsEmpty() bool { return r.Generation == 0 && (r.Pointer == 0 || r.Bytes == 0) }

// StreamKey identifies a stream among the rows of one trace.
type StreamKey struct {
	Stream, Thread uint64
	PerThread      bool
}

// StreamKey is the stream that the row names.
func (r Row) StreamKey() StreamKey {
	k := StreamKey{Stream: r.Stream, PerThread: r.PerThread}
	if r.PerThread {
		k.Thread = r.Thread
	}
	return k
}

// Holes says whether a trace lacks records behind its first.
type Holes uint8

// What is known of them.
const (
	// NoHoles: the records are numbered without a gap, or they are RMM's, which have no numbers.
	NoHoles Holes = iota
	// SomeHoles: some are missing.
	SomeHoles
	// UnknownHoles: they have no numbers, as those of a process's history, which has mostly the newest records of each
	// stream, and gives up those of a quiet one when others need the room.
	UnknownHoles
)

// Job is a job that has ended.
type Job struct {
	Name string
	// Start is on the clock of the rows, Duration until the end with what the job Waited for a reservation
	// and a stream.
	Start, Duration, Waited time.Duration
	// Stream is the first that the job had, zero if none.
	Stream uint64
	Device int
	// Bytes is the most that was live of what it allocated, with padding and red zones.
	Bytes uint64
}

// Trace is a whole trace, every row of it valid, in the order of the file.
type Trace struct {
	// Name is the name that the trace was read under, usually a path.
	Name   string
	Format Format
	Rows   []Row
	// Jobs are those that ended, in the order of their ends; logs of Fencepost have them.
	Jobs []Job
	// Skipped counts the records of a log that replay has no use for, such
	// as prepared uses.
	Skipped int
	// Holes says whether records are missing behind the first.
	Holes Holes
	// Passed is what of the file is not in the trace.
	Passed Passed
}
