package history

import (
	"encoding/json"
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/jsonobject"
)

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
	args = append(args, blockArgs(e)...)
	for _, part := range []*core.Event{s.first, s.last} {
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
	case s.last != nil && s.last.Op == core.OpFinish:
		outcome = "finished"
	case s.last != nil && s.last.Op == core.OpAbort:
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

func blockArgs(e *core.Event) (args object) {
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

func (t *trace) writeRefusal(e *core.Event, at int64) {
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
