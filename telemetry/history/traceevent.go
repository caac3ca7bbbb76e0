package history

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
)

// pid is the process by which a viewer shows a device. Zero is the idle
// process to some.
func pid(ordinal int) int { return ordinal + 1 }

// writeTracks names devices and tracks and puts them in order.
func (t *trace) writeTracks() {
	for _, b := range t.history.books {
		t.metadata("process_name", pid(b.ordinal), t.tids[track{ordinal: b.ordinal}], "name", quoted(fmt.Sprintf("GPU %d", b.ordinal)))
	}
	for i, k := range t.sorted() {
		t.metadata("thread_name", pid(k.ordinal), t.tids[k], "name", quoted(k.String()))
		t.metadata("thread_sort_index", pid(k.ordinal), t.tids[k], "sort_index", whole(uint64(i)))
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

func (t *trace) metadata(name string, pid, tid int, key string, value []byte) {
	t.open("M", name, "__metadata", pid, tid, 0)
	t.args()
	t.arg(key, value)
	t.close()
}

// write writes one entry.
func (t *trace) write(m moment) {
	switch {
	case m.span != nil:
		t.slice(m.span)
	case m.arrow != 0:
		a := t.arrows[m.arrow-1]
		if m.ends {
			t.open("f", "wait", "wait", pid(a.to.ordinal), t.tids[a.to.track], m.at)
			t.field("bp", `"e"`)
		} else {
			t.open("s", "wait", "wait", pid(a.from.ordinal), t.tids[a.from.track], m.at)
		}
		t.field("id", strconv.Itoa(m.arrow))
		t.args()
		t.close()
	case m.counter != nil:
		c := m.counter
		t.open("C", c.name+" bytes", memoryTrack.String(), pid(c.ordinal), t.tids[track{ordinal: c.ordinal}], m.at)
		t.args()
		t.arg("bytes", whole(c.bytes))
		t.close()
	case m.event != nil:
		t.refusal(m.event, m.at)
	case m.finding != nil:
		t.findingMark(m.finding, m.at)
	}
}

func (t *trace) slice(s *span) {
	e, name := s.event(), s.event().Op.String()
	if s.kind == launchTrack {
		name = "launch"
		if e.Launch != "" {
			name = e.Launch
		}
	}
	t.open("X", name, s.kind.String(), pid(s.ordinal), t.tids[s.track], s.begin)
	t.field("dur", microseconds(s.end-s.begin))
	t.args()
	if s.kind == launchTrack {
		t.launchArgs(s)
	}
	t.blockArgs(e)
	for _, part := range []*core.Event{s.first, s.last} {
		if part != nil && part.Err != nil {
			t.arg("error", quoted(part.Err.Error()))
			break
		}
	}
	t.close()
}

func (t *trace) launchArgs(s *span) {
	e := s.event()
	t.arg("launch_id", whole(e.LaunchID))
	t.arg("access", quoted(e.Access.String()))
	t.arg("uses", whole(uint64(e.Uses)))
	t.arg("waits", whole(uint64(e.Waits)))
	t.arg("elided", whole(uint64(e.Elided)))
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
	t.arg("outcome", quoted(outcome))
	if s.first == nil {
		t.arg("prepared", quoted("before the history"))
	}
}

func (t *trace) blockArgs(e *core.Event) {
	if e.Tag != "" {
		t.arg("tag", quoted(string(e.Tag)))
	}
	if e.Bytes > 0 {
		t.arg("requested", whole(e.Requested))
		t.arg("bytes", whole(e.Bytes))
	}
	if e.Block.Generation != 0 {
		t.arg("generation", whole(uint64(e.Block.Generation)))
		t.arg("ptr", quoted(fmt.Sprintf("%#x", e.Block.Ptr)))
	}
}

func (t *trace) refusal(e *core.Event, at int64) {
	t.open("i", "refusal", memoryTrack.String(), pid(e.Ordinal), t.tids[trackOf(e)], at)
	t.field("s", `"t"`)
	t.args()
	t.blockArgs(e)
	t.arg("relieved", strconv.AppendBool(nil, e.Relieved))
	if e.Err != nil {
		t.arg("error", quoted(e.Err.Error()))
	}
	t.close()
}

func (t *trace) findingMark(f *core.Finding, at int64) {
	ordinal := f.Victim.ID.Ordinal
	t.open("i", "finding "+string(f.Kind), "finding", pid(ordinal), t.tids[track{ordinal: ordinal}], at)
	t.field("s", `"p"`)
	t.args()
	t.arg("source", quoted(f.Source))
	t.arg("text", quoted(f.Text))
	if f.Victim.ID.Generation != 0 {
		t.arg("tag", quoted(string(f.Victim.Tag)))
		t.arg("generation", whole(uint64(f.Victim.ID.Generation)))
	}
	t.close()
}

// open begins an entry. Fields follow, then args and each arg, then close.
func (t *trace) open(phase, name, category string, pid, tid int, at int64) {
	t.buf = append(t.buf[:0], ",\n"...)
	if t.first {
		t.buf, t.first = t.buf[1:], false
	}
	t.buf = append(t.buf, `{"ph":"`+phase+`","name":`...)
	t.buf = append(t.buf, quoted(name)...)
	t.buf = append(t.buf, `,"cat":`...)
	t.buf = append(t.buf, quoted(category)...)
	t.field("pid", strconv.Itoa(pid))
	t.field("tid", strconv.Itoa(tid))
	t.field("ts", microseconds(at))
}

func (t *trace) field(key, value string) { t.buf = append(t.buf, `,"`+key+`":`+value...) }

func (t *trace) args() { t.buf = append(t.buf, `,"args":{`...) }

// arg adds an argument; value is JSON.
func (t *trace) arg(key string, value []byte) {
	if t.buf[len(t.buf)-1] != '{' {
		t.buf = append(t.buf, ',')
	}
	t.buf = append(append(t.buf, `"`+key+`":`...), value...)
}

func (t *trace) close() { _, _ = t.out.Write(append(t.buf, '}', '}')) }

// whole is a number in JSON.
func whole(n uint64) []byte { return strconv.AppendUint(nil, n, 10) }

// quoted is a text in JSON; what is not UTF-8 in it is replaced, and what does not
// print is escaped, because a trace may be written to a terminal.
func quoted(s string) []byte {
	text, err := json.Marshal(s)
	if err != nil { // there is no text of which that is so
		return []byte(`""`)
	}
	return terminal.JSON(text)
}

// microseconds writes nanoseconds in the format's unit, with all of them.
func microseconds(ns int64) string {
	return fmt.Sprintf("%d.%03d", ns/1000, ns%1000)
}
