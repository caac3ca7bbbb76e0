package history

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
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

func newTrace(h *loaded) *trace { return &trace{history: h, tids: map[track]int{}} }

func (t *trace) export(w io.Writer) error {
	t.out = bufio.NewWriterSize(w, 64<<10)
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
		if e := &t.history.events[i]; e.Op == core.OpRefusal {
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
		if e := &t.history.events[i]; e.Op == core.OpRefusal {
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
	r := newReplay(b, t.history.events, func(step step, block *memory, e *core.Event) {
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
		if step == stepAllocate {
			at = max(at, t.history.after(e))
		} else {
			at = max(at, t.history.begin(e))
		}
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
