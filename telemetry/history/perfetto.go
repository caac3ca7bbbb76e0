package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/jsonobject"
)

// moment is one entry of a trace, and what writes it.
type moment struct {
	at    int64
	order uint8
	write func()
}

// The order of entries of one moment: what an arrow is bound to comes first.
const (
	orderSpan uint8 = iota
	orderTail
	orderHead
	orderPoint
)

// trace is a trace that is being written.
type trace struct {
	out     *bufio.Writer
	history *loaded
	tids    map[track]int
	begun   bool
}

func (h *loaded) writeTrace(w io.Writer) error {
	t := &trace{history: h, tids: map[track]int{}, out: bufio.NewWriterSize(w, 64<<10)}
	spans := spansOf(t.history)
	tracks := t.numberTracks(spans)
	fmt.Fprintf(t.out, `{"displayTimeUnit":"ns","otherData":{"source":"fencepost","started":%q},"traceEvents":[`, t.history.origin.UTC().Format(time.RFC3339Nano))
	t.writeTracks(tracks)
	for _, m := range t.moments(spans) {
		m.write()
	}
	_, _ = t.out.WriteString("\n]}\n")
	return t.out.Flush()
}

// firstTID keeps the numbers of tracks apart from those of devices: a viewer
// takes a thread with its process's number for the main thread.
const firstTID = 1000

// numberTracks numbers the tracks in the order in which they are to stand.
func (t *trace) numberTracks(spans []*span) []track {
	for _, b := range t.history.books {
		t.tids[hostOf(b.ordinal)] = 0
	}
	for _, s := range spans {
		t.tids[s.track] = 0
	}
	for i := range t.history.events {
		if e := &t.history.events[i]; e.Op == oplog.OpRefusal {
			t.tids[trackOf(e)] = 0
		}
	}
	tracks := slices.SortedFunc(maps.Keys(t.tids), track.compare)
	for i, k := range tracks {
		t.tids[k] = firstTID + i
	}
	return tracks
}

// moments are all entries in the order of their times.
func (t *trace) moments(spans []*span) []moment {
	var all []moment
	add := func(at int64, order uint8, write func()) { all = append(all, moment{at, order, write}) }
	for _, s := range spans {
		add(s.begin, orderSpan, func() { t.writeSpan(s) })
	}
	for i, a := range arrowsOf(t.history, spans) {
		add(a.leaves, orderTail, func() { t.write("s", "wait", "wait", a.from.track, a.leaves, object{"id", i + 1}, object{}) })
		add(a.arrives, orderHead, func() { t.write("f", "wait", "wait", a.to.track, a.arrives, object{"bp", "e", "id", i + 1}, object{}) })
	}
	for i := range t.history.events {
		if e := &t.history.events[i]; e.Op == oplog.OpRefusal {
			at := t.history.begin(e)
			add(at, orderPoint, func() { t.writeRefusal(e, at) })
		}
	}
	for i := range t.history.findings {
		f := &t.history.findings[i]
		at := t.history.since(f.Time)
		add(at, orderPoint, func() { t.writeFinding(f, at) })
	}
	for _, b := range t.history.books {
		t.emitCounters(b, func(at int64, name string, bytes uint64) {
			add(at, orderPoint, func() {
				t.write("C", name+" bytes", memoryTrack.String(), hostOf(b.ordinal), at, nil, object{"bytes", bytes})
			})
		})
	}
	slices.SortStableFunc(all, func(a, b moment) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order))
	})
	return all
}

// emitCounters replays a device and calls add for each change of its bytes. What a guard
// holds back is live to the log; it is known for the end of the history only, from
// the resources.
func (t *trace) emitCounters(b *book, add func(at int64, name string, bytes uint64)) {
	var live, pending uint64
	at := int64(0)
	begun := false
	r := t.history.replay(b, func(step step, block *memory, now int64, e *oplog.Event) {
		if e != nil && !begun {
			begun = true // the sum of what was there from the beginning
			add(at, "live", live)
			add(at, "pending", pending)
		}
		switch step {
		case stepAllocate:
			live += block.bytes
		case stepFree:
			live, pending = live-block.bytes, pending+block.bytes
		case stepRelease:
			pending -= block.bytes
		default:
			return
		}
		if e == nil {
			return
		}
		at = max(at, now)
		if step != stepRelease {
			add(at, "live", live)
		}
		if step != stepAllocate && b.releases {
			add(at, "pending", pending)
		}
	})
	at = t.history.end
	add(at, "live", live)
	add(at, "pending", pending)
	if len(t.history.listed) > 0 {
		add(at, "quarantined", t.quarantined(r))
	}
}

func (t *trace) quarantined(r *replay) (bytes uint64) {
	for _, b := range r.left() {
		if t.history.listed[b.id.Generation].state == core.Quarantined {
			bytes += b.bytes
		}
	}
	return bytes
}

// hostOf is the track of a device's own entries.
func hostOf(ordinal int) track { return track{ordinal: ordinal} }

// writeTracks names devices and tracks and puts them in order.
func (t *trace) writeTracks(tracks []track) {
	metadata := func(name string, on track, about object) { t.write("M", name, "__metadata", on, 0, nil, about) }
	for _, b := range t.history.books {
		metadata("process_name", hostOf(b.ordinal), object{"name", fmt.Sprintf("GPU %d", b.ordinal)})
	}
	for i, k := range tracks {
		metadata("thread_name", k, object{"name", k.String()})
		metadata("thread_sort_index", k, object{"sort_index", i})
	}
}

// String is the track's name, such as "stream 3 memory (2)".
func (k track) String() string {
	name := "host"
	switch k.kind {
	case launchTrack:
		name = "stream " + k.stream.String()
	case deviceTrack:
		name = "stream " + k.stream.String() + " on the device"
	case memoryTrack:
		name = "stream " + k.stream.String() + " memory"
	}
	if k.lane > 0 {
		name += fmt.Sprintf(" (%d)", k.lane+1)
	}
	return name
}

func (t *trace) writeSpan(s *span) {
	e, name, args := s.event(), s.event().Op.String(), object{}
	if s.kind == launchTrack {
		name = "launch"
		if e.Launch != "" {
			name = e.Launch
		}
		args = launchArgs(s)
	}
	if s.kind == deviceTrack {
		name, args = deviceArgs(s)
	}
	args = append(args, blockArgs(e)...)
	if e.Job != nil {
		name = "job " + string(e.Tag)
		args = append(args, jobArgs(e.Job)...)
	}
	for _, part := range []*oplog.Event{s.first, s.last} {
		if part != nil && part.Err != nil {
			args = append(args, "error", part.Err.Error())
			break
		}
	}
	t.write("X", name, s.kind.String(), s.track, s.begin, object{"dur", microseconds(s.end - s.begin)}, args)
}

func launchArgs(s *span) object {
	outcome := "in flight"
	switch {
	case s.last != nil && s.last.Op == oplog.OpFinish:
		outcome = "finished"
	case s.last != nil && s.last.Op == oplog.OpAbort:
		outcome = "aborted"
	case s.last != nil && s.last.Err != nil:
		outcome = "refused"
	case s.last != nil:
		outcome = "unknown" // an old log: it does not say which launch it is
	}
	e := s.event()
	args := object{"launch_id", e.LaunchID, "access", e.Access.String(), "uses", e.Uses, "waits", e.Waits, "elided", e.Elided, "outcome", outcome}
	if s.first == nil {
		args = append(args, "prepared", "before the history")
	}
	return args
}

// deviceArgs are the name and what there is to say of a wait or a launch on the device. Durations are in nanoseconds.
func deviceArgs(s *span) (name string, args object) {
	if s.wait != nil {
		w := s.wait
		return "waits for " + cmp.Or(w.Launch, "stream "+w.Stream.String()), object{"launch_id", s.first.LaunchID, "waited_for", w.For.Launch, "stream", uint64(w.Stream),
			"tag", string(w.Tag), "generation", uint64(w.Generation), "access", w.Access.String()}
	}
	d := s.first.Device
	return cmp.Or(d.Name, "launch"), object{"launch_id", d.Launch, "queued_ns", max(0, d.Reached.Sub(d.Prepared).Nanoseconds()),
		"held_ns", max(0, d.Began.Sub(d.Reached).Nanoseconds()), "clock_error_ns", d.Bound.Nanoseconds()}
}

// jobArgs is a job's bill beside its peak.
func jobArgs(j *core.JobAccount) object {
	return object{"byte_seconds", j.ByteSeconds, "allocated_bytes", j.Allocated.Bytes, "allocated_blocks", j.Allocated.Blocks, "reserved", j.Reserved, "predicted", j.Predicted, "unused_byte_seconds", j.UnusedByteSeconds,
		"waited_for_memory_ns", j.WaitedForMemory.Nanoseconds(), "waited_for_stream_ns", j.WaitedForStream.Nanoseconds(), "waited_on_device_ns", j.WaitedOnDevice.Nanoseconds(),
		"launches", j.Launches, "timed_launches", j.TimedLaunches}
}

func blockArgs(e *oplog.Event) (args object) {
	if e.Tag != "" {
		args = append(args, "tag", string(e.Tag))
	}
	if e.Bytes > 0 {
		args = append(args, "requested", e.Requested, "bytes", e.Bytes)
	}
	if e.Block.Generation != 0 {
		args = append(args, "generation", uint64(e.Block.Generation), "ptr", fmt.Sprintf("%#x", e.Block.Ptr))
	}
	return args
}

func (t *trace) writeRefusal(e *oplog.Event, at int64) {
	args := append(blockArgs(e), "relieved", e.Relieved)
	if e.Err != nil {
		args = append(args, "error", e.Err.Error())
	}
	t.write("i", "refusal", memoryTrack.String(), trackOf(e), at, object{"s", "t"}, args)
}

func (t *trace) writeFinding(f *core.Finding, at int64) {
	args := object{"source", f.Source, "text", f.Text}
	if f.Victim.ID.Generation != 0 {
		args = append(args, "tag", string(f.Victim.Tag), "generation", uint64(f.Victim.ID.Generation))
	}
	t.write("i", "finding "+string(f.Kind), "finding", hostOf(f.Victim.ID.Ordinal), at, object{"s", "p"}, args)
}

// write writes one entry. The process by which a viewer shows a device is one more
// than its ordinal: zero is the idle process to some. What does not print is
// escaped, because a trace may be written to a terminal.
func (t *trace) write(phase, name, category string, on track, at int64, fields, args object) {
	separator := ",\n"
	if !t.begun {
		separator, t.begun = "\n", true
	}
	entry := append(object{"ph", phase, "name", name, "cat", category, "pid", on.ordinal + 1, "tid", t.tids[on], "ts", microseconds(at)}, fields...)
	text, _ := append(entry, "args", args).MarshalJSON() // they are texts and numbers
	_, _ = t.out.WriteString(separator)
	_, _ = t.out.Write(terminal.JSON(text))
}

type object = jsonobject.Object

// microseconds writes nanoseconds in the format's unit, with all of them.
func microseconds(ns int64) json.Number {
	return json.Number(fmt.Sprintf("%d.%03d", ns/1000, ns%1000))
}
