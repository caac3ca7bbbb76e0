package alloctrace

import (
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// logLine is what replay reads of a record of decorators/logging. Pointers
// tell a missing key from a zero; keys that replay does not use are left to
// the tools that do.
type logLine struct {
	Op         *string `json:"op"`
	Seq        uint64  `json:"seq"`
	MonoNS     *int64  `json:"mono_ns"`
	Device     int     `json:"device"`
	Stream     *uint64 `json:"stream"`
	Ptr        *string `json:"ptr"`
	Generation *uint64 `json:"generation"`
	Tag        string  `json:"tag"`
	Requested  *uint64 `json:"requested"`
	Bytes      *uint64 `json:"bytes"`
	Error      string  `json:"error"`
	Kind       string  `json:"kind"`
	Relieved   bool    `json:"relieved"`
}

// knownOps are the operations that the log can hold. They come from core, so
// a new one is known here at once.
var knownOps = func() map[string]bool {
	known := map[string]bool{}
	unknown := oplog.Op(0xff).String()
	for op := oplog.OpAllocate; op.String() != unknown; op++ {
		known[op.String()] = true
	}
	return known
}()

// logRows parses records of Fencepost's log, and notes their numbers.
type logRows struct{ numbers *numbers }

func (logRows) mayBeCut(string) bool { return false }

// parse reads one line; ok is false for a record that replay skips.
func (p logRows) parse(line string) (row Row, ok bool, err *ParseError) {
	var l logLine
	if jsonErr := json.Unmarshal([]byte(line), &l); jsonErr != nil {
		return Row{}, false, jsonError(line, jsonErr)
	}
	p.numbers.note(l.Seq)
	action, err := l.action()
	if err != nil || action == 0 {
		return Row{}, false, err
	}
	row, err = l.row(action)
	return row, err == nil, err
}

// action is what the record means to a replay, zero for nothing. A failed
// deallocate is nothing: the block stayed live. A refusal by a budget never
// reached the device, so no allocation tells of it; one by the device has its
// own failed allocation.
func (l *logLine) action() (Action, *ParseError) {
	if l.Op == nil {
		return 0, bad("op", "", "missing")
	}
	if !knownOps[*l.Op] {
		return 0, bad("op", *l.Op, "unknown operation")
	}
	failed := l.Error != ""
	switch {
	case *l.Op == oplog.OpAllocate.String() && failed, *l.Op == oplog.OpRefusal.String() && !l.Relieved && l.Kind != "out_of_memory":
		return AllocateFailure, nil
	case *l.Op == oplog.OpAllocate.String():
		return Allocate, nil
	case *l.Op == oplog.OpDeallocate.String() && !failed:
		return Free, nil
	}
	return 0, nil
}

func (l *logLine) row(action Action) (Row, *ParseError) {
	if missing := l.missing(action); missing != "" {
		return Row{}, bad(missing, "", "missing")
	}
	if *l.MonoNS < 0 {
		return Row{}, bad("mono_ns", strconv.FormatInt(*l.MonoNS, 10), "must not be negative")
	}
	if l.Device < 0 {
		return Row{}, bad("device", strconv.Itoa(l.Device), "must not be negative")
	}
	row := Row{Action: action, Time: time.Duration(*l.MonoNS), Stream: *l.Stream, Tag: l.Tag, Device: l.Device, Bytes: l.size()}
	if l.Ptr != nil {
		pointer, err := parsePointer("ptr", *l.Ptr)
		if err != nil {
			return Row{}, err
		}
		row.Pointer = pointer
	}
	if action == AllocateFailure {
		row.Error = l.Error
		return row, nil
	}
	row.Generation = *l.Generation
	if row.Generation == 0 {
		return Row{}, bad("generation", "0", "generations start at 1")
	}
	return row, nil
}

// missing names a key without which the record cannot be replayed.
func (l *logLine) missing(action Action) string {
	switch {
	case l.MonoNS == nil:
		return "mono_ns"
	case l.Stream == nil:
		return "stream"
	case l.Generation == nil && action != AllocateFailure:
		return "generation"
	case l.Requested == nil && l.Bytes == nil && action != Free:
		return "requested"
	}
	return ""
}

// size is what the program asked for; the padded size only stands in for it.
func (l *logLine) size() uint64 {
	switch {
	case l.Requested != nil:
		return *l.Requested
	case l.Bytes != nil:
		return *l.Bytes
	}
	return 0
}

func jsonError(line string, err error) *ParseError {
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) && wrongType.Field != "" {
		e := bad(wrongType.Field, wrongType.Value, "does not fit in "+wrongType.Type.String())
		e.Err = err
		return e
	}
	e := bad("row", line, "not a JSON object: "+err.Error())
	e.Err = err
	return e
}
