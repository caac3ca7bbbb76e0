package history

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// moment is one entry of a trace. Exactly one of its parts is set.
type moment struct {
	at    int64
	order uint8
	span  *span
	// arrow is the number of an arrow, counted from 1; ends is set for its
	// head.
	arrow   int
	ends    bool
	counter *counter
	event   *core.Event
	finding *core.Finding
}

// The order of entries of one moment: what an arrow is bound to comes first.
const (
	orderSpan uint8 = iota
	orderTail
	orderHead
	orderPoint
)

// counter is the bytes of a device from a moment on.
type counter struct {
	ordinal int
	name    string
	bytes   uint64
}

// trace is a trace that is being written.
type trace struct {
	out     *bufio.Writer
	history *loaded
	tids    map[track]int
	arrows  []arrow
	buf     []byte
	first   bool
}

func newTrace(w io.Writer, h *loaded) *trace {
	return &trace{out: bufio.NewWriterSize(w, 64<<10), history: h, tids: map[track]int{}, first: true}
}

func (t *trace) writeAll() error {
	spans := spansOf(t.history)
	t.findArrows(spans)
	t.numberTracks(spans)
	fmt.Fprintf(t.out, `{"displayTimeUnit":"ns","otherData":{"source":"fencepost","started":%q},"traceEvents":[`, t.history.origin.UTC().Format(time.RFC3339Nano))
	t.writeTracks()
	for _, m := range t.moments(spans) {
		t.write(m)
	}
	_, _ = t.out.WriteString("\n]}\n")
	return t.out.Flush()
}

// firstTID keeps the numbers of tracks apart from those of devices: a viewer
// takes a thread with its process's number for the main thread.
const firstTID = 1000

// numberTracks numbers the tracks in the order in which they are to stand.
func (t *trace) numberTracks(spans []*span) {
	for _, b := range t.history.books {
		t.tids[track{ordinal: b.ordinal}] = 0
	}
	for _, s := range spans {
		t.tids[s.track] = 0
	}
	for i := range t.history.events {
		if e := &t.history.events[i]; e.Op == core.OpRefusal {
			t.tids[trackOf(e)] = 0
		}
	}
	for i, k := range t.sorted() {
		t.tids[k] = firstTID + i
	}
}

func (t *trace) sorted() []track {
	tracks := make([]track, 0, len(t.tids))
	for k := range t.tids {
		tracks = append(tracks, k)
	}
	slices.SortFunc(tracks, track.compare)
	return tracks
}

// moments are all entries in the order of their times.
func (t *trace) moments(spans []*span) []moment {
	var all []moment
	for _, s := range spans {
		all = append(all, moment{at: s.begin, order: orderSpan, span: s})
	}
	for i, a := range t.arrows {
		all = append(all, moment{at: a.leaves, order: orderTail, arrow: i + 1}, moment{at: a.arrives, order: orderHead, arrow: i + 1, ends: true})
	}
	for i := range t.history.events {
		if e := &t.history.events[i]; e.Op == core.OpRefusal {
			all = append(all, moment{at: t.history.begin(e), order: orderPoint, event: e})
		}
	}
	for i := range t.history.findings {
		f := &t.history.findings[i]
		all = append(all, moment{at: t.history.since(f.Time), order: orderPoint, finding: f})
	}
	for _, b := range t.history.books {
		all = append(all, t.counters(b)...)
	}
	slices.SortStableFunc(all, func(a, b moment) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order))
	})
	return all
}

// counters replays a device. What a guard holds back is live to the log; it is
// known for the end of the history only, from the resources.
func (t *trace) counters(b *book) []moment {
	var all []moment
	var live, pending uint64
	at := int64(0)
	add := func(name string, bytes uint64) {
		all = append(all, moment{at: at, order: orderPoint, counter: &counter{b.ordinal, name, bytes}})
	}
	begun := false
	r := newReplay(b, t.history.events, func(step step, block *memory, e *core.Event) {
		if e != nil && !begun {
			begun = true // the sum of what was there from the beginning
			add("live", live)
			add("pending", pending)
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
		if now := t.history.begin(e); step != stepAllocate {
			at = max(at, now)
		} else {
			at = max(at, t.history.after(e))
		}
		if step != stepRelease {
			add("live", live)
		}
		if step != stepAllocate && b.releases {
			add("pending", pending)
		}
	})
	at = t.history.end
	add("live", live)
	add("pending", pending)
	if len(t.history.listed) > 0 {
		add("quarantined", t.quarantined(r))
	}
	return all
}

func (t *trace) quarantined(r *replay) (bytes uint64) {
	for _, b := range r.left() {
		if t.history.listed[b.id.Generation].state == core.Quarantined {
			bytes += b.bytes
		}
	}
	return bytes
}
