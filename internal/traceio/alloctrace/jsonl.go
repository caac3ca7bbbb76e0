package alloctrace

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/workline"
)

// logLine is what replay reads of a record of decorators/logging. Pointers
// tell a missing key from a zero; keys that replay does not use are left to
// the tools that do.
type logLine struct {
	Op         *string       `json:"op"`
	Seq        uint64        `json:"seq"`
	MonoNS     *int64        `json:"mono_ns"`
	Duration   int64         `json:"duration_ns"`
	Device     int           `json:"device"`
	Stream     *uint64       `json:"stream"`
	Ptr        *string       `json:"ptr"`
	Generation *uint64       `json:"generation"`
	Tag        string        `json:"tag"`
	Requested  *uint64       `json:"requested"`
	Bytes      *uint64       `json:"bytes"`
	Error      string        `json:"error"`
	Kind       string        `json:"kind"`
	Relieved   bool          `json:"relieved"`
	Job        *workline.Job `json:"job"`
}

// operation is the line's operation.
func (l *logLine) operation() (oplog.Op, *ParseError) {
	if l.Op == nil {
		return 0, bad("op", "", "missing")
	}
	unknown := oplog.Op(0).String()
	for op := oplog.OpAllocate; op.String() != unknown; op++ {
		if op.String() == *l.Op {
			return op, nil
		}
	}
	return 0, bad("op", *l.Op, "unknown operation")
}

// logRows parses records of Fencepost's log, and notes their numbers and jobs.
type logRows struct {
	numbers *numbers
	jobs    *[]Job
}

func (logRows) mayBeCut(string) bool { return false }

// parse reads one line; ok is false for a record that replay skips.
func (p logRows) parse(line string) (row Row, ok bool, err *ParseError) {
	var l logLine
	if jsonErr := json.Unmarshal([]byte(line), &l); jsonErr != nil {
		return Row{}, false, jsonError(line, jsonErr)
	}
	p.numbers.note(l.Seq)
	if l.Op != nil && *l.Op == oplog.OpJob.String() {
		job, err := l.job()
		if err == nil {
			*p.jobs = append(*p.jobs, job)
		}
		return Row{}, false, err
	}
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
	op, err := l.operation()
	failed := l.Error != ""
	switch {
	case op == oplog.OpAllocate && failed, op == oplog.OpRefusal && !l.Relieved && l.Kind != "out_of_memory":
		return AllocateFailure, nil
	case op == oplog.OpAllocate:
		return Allocate, nil
	case op == oplog.OpDeallocate && !failed:
		return Free, nil
	}
	return 0, err
}

func (l *logLine) row(action Action) (row Row, err *ParseError) {
	err = l.check()
	switch {
	case err != nil:
	case l.Generation == nil && action != AllocateFailure:
		err = bad("generation", "", "missing")
	case l.Requested == nil && l.Bytes == nil && action != Free:
		err = bad("requested", "", "missing")
	case action != AllocateFailure && *l.Generation == 0:
		err = bad("generation", "0", "generations start at 1")
	}
	if err != nil {
		return Row{}, err
	}
	// The padded size stands in for what the program asked for.
	row = Row{Action: action, Time: time.Duration(*l.MonoNS), Stream: *l.Stream, Tag: l.Tag, Device: l.Device, Bytes: *cmp.Or(l.Requested, l.Bytes, new(uint64)),
		Padded: *cmp.Or(l.Bytes, new(uint64))}
	if action == AllocateFailure {
		row.Error = l.Error
	} else {
		row.Generation = *l.Generation
	}
	row.Pointer, err = l.pointer()
	return row, err
}

// longestJob is a year, and mostJobBytes is more than any device has.
const (
	longestJob   = 365 * 24 * time.Hour
	mostJobBytes = 1 << 42
)

// job is what the record of a job says. Readers add such numbers up.
func (l *logLine) job() (Job, *ParseError) {
	err := l.check()
	switch {
	case err != nil:
		return Job{}, err
	case l.Job == nil:
		return Job{}, bad("job", "", "missing")
	case l.Duration < 0 || time.Duration(l.Duration) > longestJob || *l.MonoNS > math.MaxInt64/2:
		return Job{}, bad("duration_ns", strconv.FormatInt(l.Duration, 10), "negative, or longer than a year")
	case *cmp.Or(l.Bytes, new(uint64)) > mostJobBytes:
		return Job{}, bad("bytes", strconv.FormatUint(*l.Bytes, 10), "more than any device has")
	}
	j := Job{Name: l.Tag, Start: time.Duration(*l.MonoNS), Duration: time.Duration(l.Duration), Stream: *l.Stream, Device: l.Device, Bytes: *cmp.Or(l.Bytes, new(uint64))}
	j.Waited = min(max(0, time.Duration(l.Job.ForMemory)), j.Duration)
	j.Waited += min(max(0, time.Duration(l.Job.ForStream)), j.Duration-j.Waited)
	return j, nil
}

// check refuses what no record has.
func (l *logLine) check() *ParseError {
	switch {
	case l.MonoNS == nil:
		return bad("mono_ns", "", "missing")
	case l.Stream == nil:
		return bad("stream", "", "missing")
	case *l.MonoNS < 0:
		return bad("mono_ns", strconv.FormatInt(*l.MonoNS, 10), "must not be negative")
	case l.Device < 0:
		return bad("device", strconv.Itoa(l.Device), "must not be negative")
	}
	return nil
}

// pointer is the line's address, zero if it has none.
func (l *logLine) pointer() (uint64, *ParseError) {
	if l.Ptr == nil {
		return 0, nil
	}
	return parsePointer("ptr", *l.Ptr)
}

func jsonError(line string, err error) *ParseError {
	e := bad("row", line, "not a JSON object: "+err.Error())
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		e = bad(strings.TrimPrefix(wrong.Field, "logLine."), wrong.Value, "does not fit in "+wrong.Type.String())
	}
	e.Err = err
	return e
}
