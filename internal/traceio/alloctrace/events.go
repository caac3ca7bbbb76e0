package alloctrace

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/workline"
)

// ReadEvents reads all of a log of Fencepost's, plain or gzipped, within
// [DefaultLimits]; see [Limits.EachEvent].
func ReadEvents(name string, r io.Reader) ([]oplog.Event, error) {
	var events []oplog.Event
	_, err := DefaultLimits.EachEvent(name, r, func(_ string, e oplog.Event) { events = append(events, e) })
	if err != nil {
		return nil, err
	}
	return events, nil
}

// EachEvent reads a log of Fencepost's, plain or gzipped, checks every line of it
// and calls yield with each line and what it says, but those of [Passed].
// name stands for the file in errors, which are [ParseError]. What the events
// point to, errors among it, says what the log says: the kind of an error
// matches the sentinel of core.
//
// Times are those of the log's monotonic clock, counted from the wall clock of
// its first line, so that a step of the latter does not tear the history. A
// difference of more than a second is followed: the process was started anew.
func (l Limits) EachEvent(name string, r io.Reader, yield func(line string, e oplog.Event)) (Passed, error) {
	d, err := l.NewReader(name, r)
	if err != nil {
		return Passed{}, err
	}
	if d.format != FormatLog {
		return Passed{}, bad("header", "", "this is RMM's CSV, which replay reads, and not a log of Fencepost's").at(name, 1)
	}
	clock := logClock{numbers: &d.numbers}
	for {
		line, err := d.next()
		var e oplog.Event
		if err == nil {
			var wrong *ParseError
			if e, wrong = clock.parse(line); wrong != nil {
				err = d.refuse(wrong)
			}
		}
		if errors.Is(err, io.EOF) {
			return d.Passed(), nil
		}
		if err != nil {
			return d.Passed(), err
		}
		yield(line, e)
	}
}

// eventLine is all of a record of decorators/logging.
type eventLine struct {
	logLine
	Time       *time.Time     `json:"time"`
	Layer      string         `json:"layer"`
	Launch     string         `json:"launch"`
	LaunchID   uint64         `json:"launch_id"`
	Access     string         `json:"access"`
	Uses       int            `json:"uses"`
	Waits      int            `json:"waits"`
	Elided     int            `json:"elided"`
	WaitedFor  []uint64       `json:"waited_launches"`
	WaitBlocks []uint64       `json:"waited_blocks"`
	TraceID    string         `json:"trace_id"`
	SpanID     string         `json:"span_id"`
	Timed      *workline.Line `json:"timed"`
}

// logClock turns the times of a log into instants.
type logClock struct {
	start   time.Time
	numbers *numbers
}

// at is the instant of a line.
func (c *logClock) at(wall time.Time, mono time.Duration) time.Time {
	if at := c.start.Add(mono); !c.start.IsZero() && at.Sub(wall).Abs() <= time.Second {
		return at
	}
	c.start = wall.Add(-mono)
	return wall
}

func (c *logClock) parse(line string) (oplog.Event, *ParseError) {
	var l eventLine
	if err := json.Unmarshal([]byte(line), &l); err != nil {
		return oplog.Event{}, jsonError(line, err)
	}
	c.numbers.note(l.Seq)
	op, err := l.operation()
	if err != nil {
		return oplog.Event{}, err
	}
	if err := l.checkEvent(); err != nil {
		return oplog.Event{}, err
	}
	access, _ := workline.Access(l.Access)
	e := oplog.Event{Op: op, Relieved: l.Relieved, Access: access, Layer: l.Layer, Duration: time.Duration(l.Duration),
		Time: c.at(*l.Time, time.Duration(*l.MonoNS)), Ordinal: l.Device, Stream: core.StreamID(*l.Stream), Tag: core.Tag(l.Tag),
		Launch: l.Launch, LaunchID: l.LaunchID, Uses: l.Uses, Waits: l.Waits, Elided: l.Elided}
	e.Requested, e.Bytes = *cmp.Or(l.Requested, new(uint64)), *cmp.Or(l.Bytes, new(uint64))
	if l.Generation != nil {
		e.Block = core.BlockID{Generation: core.Generation(*l.Generation), Ordinal: l.Device}
		if op == oplog.OpAllocate || op == oplog.OpDeallocate || op == oplog.OpRelease {
			e.Block.AllocStream = e.Stream // of a launch it is not logged
		}
	}
	if e.Block.Ptr, err = l.pointer(); err != nil {
		return oplog.Event{}, err
	}
	l.waits(&e)
	if err := l.device(&e); err != nil {
		return oplog.Event{}, err
	}
	if l.Error != "" {
		e.Err = &LoggedError{Kind: l.Kind, Text: l.Error}
	}
	err = l.checkBlock(&e)
	return e, err
}

// maxAddress is beyond what any device has; of two numbers below it the sum
// does not overflow.
const maxAddress = 1 << 62

// checkBlock refuses a block that no device can have. Of what was refused, or
// only claimed, any size is right.
func (l *eventLine) checkBlock(e *oplog.Event) *ParseError {
	block := e.Block.Generation != 0 && (e.Op == oplog.OpAllocate || e.Op == oplog.OpDeallocate || e.Op == oplog.OpRelease)
	const reason = "beyond what an address can be"
	switch {
	case !block || l.Error != "":
	case e.Block.Ptr >= maxAddress:
		return bad("ptr", *l.Ptr, reason)
	case e.Requested >= maxAddress:
		return bad("requested", strconv.FormatUint(e.Requested, 10), reason)
	case e.Bytes >= maxAddress:
		return bad("bytes", strconv.FormatUint(e.Bytes, 10), reason)
	}
	return nil
}

func (l *eventLine) waits(e *oplog.Event) {
	refs := e.WaitedFor[:0]
	for _, id := range l.WaitedFor {
		refs = append(refs, core.WaitRef{Launch: id})
	}
	for _, g := range l.WaitBlocks {
		refs = append(refs, core.WaitRef{Block: core.Generation(g)})
	}
	copy(e.WaitedFor[:], refs)
}

// device reads what the device did of a launch or what a job has needed, and the span of any line.
func (l *eventLine) device(e *oplog.Event) *ParseError {
	var err error
	if e.Span, err = workline.Span(l.TraceID, l.SpanID); err != nil {
		return bad("trace_id", l.TraceID, err.Error())
	}
	if e.Op == oplog.OpJob {
		if l.Job == nil {
			return bad("job", "", "missing")
		}
		e.Job = l.Job.Account(e)
		return nil
	}
	if e.Op != oplog.OpDevice {
		return nil
	}
	if l.Timed == nil {
		return bad("timed", "", "missing")
	}
	e.Device = &oplog.DeviceWork{Launch: l.LaunchID, Name: l.Launch, Stream: e.Stream, Span: e.Span, Began: e.Time, Ended: e.Time.Add(e.Duration)}
	if err := l.Timed.Into(e.Device); err != nil {
		return bad("timed", "", err.Error())
	}
	e.Waits = len(e.Device.Waits)
	return nil
}

// checkEvent refuses what no log has.
func (l *eventLine) checkEvent() *ParseError {
	if l.Time == nil {
		return bad("time", "", "missing")
	}
	if err := l.check(); err != nil {
		return err
	}
	_, access := workline.Access(l.Access)
	switch {
	case l.Duration < 0:
		return bad("duration_ns", strconv.FormatInt(l.Duration, 10), "must not be negative")
	case l.Device >= core.MaxOrdinals:
		return bad("device", strconv.Itoa(l.Device), fmt.Sprintf("does not lie in 0 to %d", core.MaxOrdinals-1))
	case !access:
		return bad("access", l.Access, "say read, write or read_write")
	case l.Uses < 0 || l.Waits < 0 || l.Elided < 0:
		return bad("uses", strconv.Itoa(l.Uses), "uses, waits and elided must not be negative")
	case len(l.WaitedFor)+len(l.WaitBlocks) > len(oplog.Event{}.WaitedFor):
		return bad("waited_launches", "", fmt.Sprintf("a line names at most %d", len(oplog.Event{}.WaitedFor)))
	}
	return nil
}
