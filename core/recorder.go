package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/fencepost-gpu/fencepost/core/names"
)

// RecorderMode says what a [LaunchRecorder] does with untracked memory: memory without a block of
// the runtime, such as an external column. The runtime cannot fence such memory. The constructor
// of a recorder sets its mode, which never changes. The zero value is no mode.
type RecorderMode uint8

// The modes of a recorder.
const (
	// Permissive skips untracked memory and returns no error. Nothing orders it against other
	// streams. Use it in low-level helpers while a program migrates, not in production.
	Permissive RecorderMode = iota + 1
	// Strict refuses untracked memory with a [StreamMisuseError]: the record call, Preflight and
	// Commit all return it. Production code uses it, so that a gap is an error.
	Strict
)

// String returns "permissive" or "strict".
func (m RecorderMode) String() string { return nameOf(m, "mode", "", "permissive", "strict") }

// LaunchRecorder collects the uses of one launch and fences them in two
// phases around it: record every buffer, [LaunchRecorder.Preflight], enqueue
// the work, [LaunchRecorder.Commit] (or [LaunchRecorder.Abort] if nothing was
// enqueued). [Runtime.Launch] does the same around a function and should be
// preferred where it fits.
//
// A recorder belongs to one goroutine. It snapshots identities and keeps no
// reference to the memory. One that has uses and is dropped without an end is
// closed as if it had been launched and reported as a finding.
type LaunchRecorder struct {
	*recording
}

// recording is the part that outlives a dropped recorder.
type recording struct {
	stream StreamID
	mode   RecorderMode
	name   string
	uses   []Use
	phase  phase
	// rejected is the first record call that was refused in strict mode,
	// late the first one after preflight.
	rejected, late error
	runtime        *Runtime
	ticket         Ticket
	born           Stack
}

type phase uint8

const (
	collecting phase = iota
	preflighted
	ended
)

// NewStrictRecorder returns a recorder in mode [Strict] for one launch on stream.
func NewStrictRecorder(stream StreamID) *LaunchRecorder { return newRecorder(stream, Strict) }

// NewPermissiveRecorder returns a recorder in mode [Permissive] for one launch on stream. If all
// memory is skipped, no launch is recorded: it is neither counted nor traced, unlike a
// [Runtime.Launch] without uses.
func NewPermissiveRecorder(stream StreamID) *LaunchRecorder { return newRecorder(stream, Permissive) }

func newRecorder(stream StreamID, mode RecorderMode) *LaunchRecorder {
	rec := &LaunchRecorder{&recording{stream: stream, mode: mode, born: CaptureStack(2)}}
	runtime.AddCleanup(rec, (*recording).dropped, rec.recording) // which the cleanup holds, and not the recorder
	return rec
}

// Named sets the launch's name for traces, logs and findings, and returns the
// recorder.
func (r *LaunchRecorder) Named(name string) *LaunchRecorder {
	if r.made() {
		r.name = names.Bound(name)
	}
	return r
}

// LaunchStream is the stream that the launch will be enqueued on. For a nil recorder it is
// [DefaultStream].
func (r *LaunchRecorder) LaunchStream() StreamID {
	if !r.made() {
		return DefaultStream
	}
	return r.stream
}

// Mode says what the recorder does with untracked memory: [Permissive] or [Strict]. For a nil
// recorder it is 0, which is neither.
func (r *LaunchRecorder) Mode() RecorderMode {
	if !r.made() {
		return 0
	}
	return r.mode
}

// RecordedCount is the number of uses recorded so far, duplicates included. Memory that a
// permissive recorder skipped does not count.
func (r *LaunchRecorder) RecordedCount() int {
	if !r.made() {
		return 0
	}
	return len(r.uses)
}

// made reports whether a constructor made r: a nil recorder and a zero one hold no recording.
func (r *LaunchRecorder) made() bool { return r != nil && r.recording != nil }

// Read records that the launch reads memory. In strict mode memory without a
// block is a [StreamMisuseError], which Preflight will return too; so is any
// use after a successful Preflight, which Commit will return too.
func (r *LaunchRecorder) Read(memory Tracked) error { return r.noteAlive("Read", memory, Read) }

// Write records that the launch overwrites memory; fresh outputs too. Errors
// are those of Read.
func (r *LaunchRecorder) Write(memory Tracked) error { return r.noteAlive("Write", memory, Write) }

// ReadWrite records that the launch reads and writes memory. Errors are those
// of Read.
func (r *LaunchRecorder) ReadWrite(memory Tracked) error {
	return r.noteAlive("ReadWrite", memory, ReadWrite)
}

// noteAlive keeps the recorder reachable while its recording changes: the
// cleanup of a dropped one must not run meanwhile.
func (r *LaunchRecorder) noteAlive(op string, memory Tracked, access Access) error {
	switch {
	case !r.made():
		return missingRecorder("LaunchRecorder." + op)
	case memory == nil:
		return missing("LaunchRecorder."+op, "memory", "give the block or slice that the launch uses")
	}
	defer runtime.KeepAlive(r)
	return r.note(op, memory, access)
}

func (r *recording) note(op string, memory Tracked, access Access) error {
	id := memory.BlockID()
	switch {
	case id.Generation == NoBytes:
		return nil
	case r.phase != collecting:
		return r.refuseLate(op, id)
	case id.Generation != NoBlock:
		use := Use{Block: id, Access: access}
		if part, ok := memory.(interface{ Use(Access) Use }); ok { // of a view
			use = part.Use(access)
		}
		r.uses = append(r.uses, use)
		return nil
	case r.mode == Permissive:
		return nil
	}
	return r.reject(op)
}

func (r *recording) refuseLate(op string, id BlockID) error {
	err := &StreamMisuseError{Op: "LaunchRecorder." + op, Block: id, Stream: r.stream,
		Reason: "recorded after preflight: once preflight has succeeded the set of uses is frozen; record this use before it"}
	r.late = cmp.Or[error](r.late, err)
	return err
}

func (r *recording) reject(op string) error {
	err := &StreamMisuseError{Op: "LaunchRecorder." + op, Stream: r.stream,
		Reason: "untracked buffer rejected: it has no block of a runtime; allocate it through a memory manager that has one, and of external (DLPack or Arrow device) memory synchronise with its producer yourself and use a permissive recorder"}
	r.rejected = cmp.Or[error](r.rejected, err)
	return err
}

// Preflight checks the recorder and queues every wait that the recorded uses
// need. It must succeed before any work is enqueued; if it fails nothing was
// opened, and it may be called again. A second call after success is refused.
// A recorder without uses needs no preflight and no tracking resource.
func (r *LaunchRecorder) Preflight(ctx context.Context, on AnyRuntime) error {
	const op = "LaunchRecorder.Preflight"
	if !r.made() {
		return missingRecorder(op)
	}
	defer runtime.KeepAlive(r)
	rt, err := runtimeOf(op, on)
	switch {
	case err != nil:
		return err
	case r.phase == preflighted:
		return &StreamMisuseError{Op: op, Stream: r.stream, Reason: "called again after it succeeded: use one recorder for each launch"}
	case r.phase == ended:
		return &StreamMisuseError{Op: op, Stream: r.stream, Reason: "the recorder was ended: use one recorder for each launch"}
	case r.rejected != nil:
		return r.rejected
	case len(r.uses) == 0:
		r.phase = preflighted
		return nil
	case !rt.SupportsBlockUseTracking():
		return &StreamMisuseError{Op: op, Stream: r.stream, Unsupported: true,
			Reason: fmt.Sprintf("the active resource %v does not support cross-stream use tracking: build the runtime around cuda.AsyncResource", rt)}
	}
	ticket, err := rt.PrepareUse(ctx, UseRequest{Stream: r.stream, Launch: r.name, Uses: r.uses})
	if err != nil {
		return err
	}
	r.runtime, r.ticket, r.phase = rt, ticket, preflighted
	return nil
}

// Commit records the launch, after it was enqueued. A recorder with uses that
// was not preflighted is refused. If a use was recorded after preflight,
// everything that was preflighted is fenced and the StreamMisuse of the late
// use is returned.
func (r *LaunchRecorder) Commit(ctx context.Context, on AnyRuntime) error {
	const op = "LaunchRecorder.Commit"
	rt, err := r.ending(op, on)
	if err == nil {
		err = r.canCommit(op)
	}
	if err != nil {
		return err
	}
	r.phase = ended
	if r.ticket == (Ticket{}) {
		return r.late
	}
	err = rt.FinishUse(ctx, r.ticket)
	if err == nil {
		return r.late
	}
	return errors.Join(r.late, err)
}

// Abort closes the recorder of a launch that was not enqueued. Nothing is
// recorded. It may be called at any time before Commit.
func (r *LaunchRecorder) Abort(ctx context.Context, on AnyRuntime) error {
	rt, err := r.ending("LaunchRecorder.Abort", on)
	if err != nil {
		return err
	}
	r.phase = ended
	if r.ticket == (Ticket{}) {
		return nil
	}
	return rt.AbortUse(ctx, r.ticket)
}

// ending is the runtime on which the recorder can be ended now.
func (r *LaunchRecorder) ending(op string, on AnyRuntime) (*Runtime, error) {
	if !r.made() {
		return nil, missingRecorder(op)
	}
	rt, err := runtimeOf(op, on)
	switch {
	case err != nil:
		return nil, err
	case r.phase == ended:
		return nil, &StreamMisuseError{Op: op, Stream: r.stream, Reason: "the recorder was ended before: use one recorder for each launch"}
	case r.runtime != nil && r.runtime != rt:
		return nil, &StreamMisuseError{Op: op, Stream: r.stream, Reason: "the recorder was preflighted by another runtime: end it there"}
	}
	return rt, nil
}

func (r *recording) canCommit(op string) error {
	switch {
	case r.rejected != nil:
		return r.rejected
	case r.phase == collecting && len(r.uses) > 0:
		return &StreamMisuseError{Op: op, Stream: r.stream,
			Reason: "a recorder with uses reached commit without a successful preflight: call Preflight before enqueueing the work"}
	}
	return nil
}
