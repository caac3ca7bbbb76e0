package history

import (
	"cmp"
	"math"
	"slices"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// trackKind is what the spans of a track are.
type trackKind uint8

// The kinds, in the order in which a device's tracks stand.
const (
	// hostTrack has what names no stream: reservations, reaps, drains.
	hostTrack trackKind = iota
	// launchTrack has a stream's launches, deviceTrack what the device did of them, memoryTrack the
	// stream's allocations, frees and recorded uses.
	launchTrack
	deviceTrack
	memoryTrack
)

// String is the category of the kind's spans.
func (k trackKind) String() string { return [...]string{"host", "launch", "device", "memory"}[k] }

// track is one line of the drawing. Spans of one track do not overlap: where
// they would, there is another lane.
type track struct {
	ordinal int
	stream  core.StreamID
	kind    trackKind
	lane    int
}

func (k track) compare(b track) int {
	return cmp.Or(cmp.Compare(k.ordinal, b.ordinal), cmp.Compare(min(k.kind, launchTrack), min(b.kind, launchTrack)),
		cmp.Compare(k.stream, b.stream), cmp.Compare(k.kind, b.kind), cmp.Compare(k.lane, b.lane))
}

// span is an operation with a duration.
type span struct {
	track
	begin, end int64
	// first is the event that began it, last the one that ended it: of a
	// launch that is whole, its prepare and its end. Either may be nil, if
	// the history does not have it.
	first, last *oplog.Event
	// wait is what the device stood behind, of a span that is no launch.
	wait *oplog.DeviceWait
}

func (s *span) event() *oplog.Event { return cmp.Or(s.first, s.last) }

// launchKey names a launch within a history.
type launchKey struct {
	ordinal int
	id      uint64
}

// spansOf makes spans of the events, in the order of their beginnings, each
// on a lane of its own.
func spansOf(h *loaded) []*span {
	var spans []*span
	open := map[launchKey]*span{}
	for i := range h.events {
		e := &h.events[i]
		if e.Op == oplog.OpRefusal || e.Op == oplog.OpRelease {
			continue // moments
		}
		if e.Device != nil {
			spans = append(spans, h.deviceSpans(e)...)
			continue
		}
		s := &span{track: trackOf(e), begin: h.begin(e), end: h.after(e), first: e, last: e}
		key := launchKey{e.Ordinal, e.LaunchID}
		switch {
		case e.LaunchID == 0 || s.kind != launchTrack:
		case e.Op == oplog.OpPrepare:
			s.last, s.end = nil, h.end // until its end is found
			open[key] = s
		case open[key] != nil:
			prepared := open[key]
			delete(open, key)
			prepared.last, prepared.end = e, max(s.end, prepared.begin)
			continue
		default:
			s.first = nil
		}
		spans = append(spans, s)
	}
	slices.SortStableFunc(spans, func(a, b *span) int { return cmp.Compare(a.begin, b.begin) })
	assignLanes(spans)
	return spans
}

// deviceSpans are the launch's waits on the device, as far as they held it up, and its work.
func (h *loaded) deviceSpans(e *oplog.Event) (spans []*span) {
	at := h.since(e.Device.Reached)
	for i := range e.Device.Waits {
		if w := &e.Device.Waits[i]; w.Held > 0 {
			end := min(at+min(int64(w.Held), math.MaxInt64-at), h.begin(e))
			spans = append(spans, &span{track: trackOf(e), begin: min(at, end), end: end, first: e, last: e, wait: w})
			at = end
		}
	}
	if e.LaunchID == 0 { // memory that is used again only waits
		return spans
	}
	return append(spans, &span{track: trackOf(e), begin: h.begin(e), end: h.after(e), first: e, last: e})
}

func trackOf(e *oplog.Event) track {
	switch e.Op {
	case oplog.OpPrepare, oplog.OpFinish, oplog.OpAbort:
		return track{ordinal: e.Ordinal, stream: e.Stream, kind: launchTrack}
	case oplog.OpDevice:
		return track{ordinal: e.Ordinal, stream: e.Stream, kind: deviceTrack}
	case oplog.OpAllocate, oplog.OpDeallocate, oplog.OpRecord, oplog.OpRelease, oplog.OpRefusal:
		return track{ordinal: e.Ordinal, stream: e.Stream, kind: memoryTrack}
	}
	return track{ordinal: e.Ordinal, kind: hostTrack}
}

// assignLanes puts each span, in the order of their beginnings, on the first
// lane of its track that is free by then. A stream's work on the device has one lane: where the
// times overlap by their error, the later one begins when the earlier one ends.
func assignLanes(spans []*span) {
	ends := map[track][]int64{}
	for _, s := range spans {
		lanes := ends[s.track]
		if s.kind == deviceTrack && len(lanes) > 0 {
			s.begin = max(s.begin, lanes[0])
			s.end = max(s.end, s.begin)
		}
		lane := slices.IndexFunc(lanes, func(end int64) bool { return end <= s.begin })
		if lane < 0 {
			lane = len(lanes)
			lanes = append(lanes, 0)
		}
		lanes[lane] = s.end
		ends[s.track] = lanes
		s.lane = lane
	}
}

// arrow leads from what was waited for to the launch that waited.
type arrow struct {
	from, to        *span
	leaves, arrives int64
}

// arrowsOf makes an arrow of each wait whose cause is in the history too.
func arrowsOf(h *loaded, spans []*span) (arrows []arrow) {
	launches := map[launchKey]*span{}
	blocks := map[core.Generation]*span{} // the last to make a block ready
	done := map[launchKey]*span{}
	for _, s := range spans {
		if s.kind == deviceTrack && s.wait == nil {
			done[launchKey{s.ordinal, s.first.LaunchID}] = s
		}
		if e := s.event(); s.kind == launchTrack && e.LaunchID != 0 {
			launches[launchKey{e.Ordinal, e.LaunchID}] = s
		}
	}
	for _, s := range spans {
		if s.kind == memoryTrack && s.first.Op != oplog.OpDeallocate && s.first.Err == nil {
			blocks[s.first.Block.Generation] = s
		}
		if s.wait != nil { // where it really ended
			if from := done[launchKey{s.ordinal, s.wait.For.Launch}]; from != nil && s.wait.For.Launch != 0 && from.begin < from.end && s.begin < s.end {
				if arrives := within(s.end, s); arrives >= from.begin {
					arrows = append(arrows, arrow{from, s, min(within(from.end, from), arrives), arrives})
				}
			}
		}
		if s.kind != launchTrack || s.first == nil {
			continue
		}
		for _, ref := range s.first.WaitedFor {
			var from *span
			switch {
			case ref.Launch != 0:
				from = launches[launchKey{s.ordinal, ref.Launch}]
			case ref.Block != 0:
				from = blocks[ref.Block]
			}
			if from == nil || from == s {
				continue
			}
			if a := h.arrow(from, s); a.leaves >= from.begin { // or it would lead back in time: the clocks disagree
				arrows = append(arrows, a)
			}
		}
	}
	return arrows
}

// arrow leads from the moment at which the cause was enqueued to the one at which
// the wait was. Both lie inside their spans, or a viewer could not tell which spans
// the arrow connects.
func (h *loaded) arrow(from, to *span) arrow {
	leaves := from.end
	if from.kind == launchTrack && from.last != nil {
		leaves = h.begin(from.last)
	}
	arrives := within(h.after(to.first), to)
	return arrow{from, to, min(within(leaves, from), arrives), arrives}
}

// within is the moment inside s that is closest to at.
func within(at int64, s *span) int64 { return max(s.begin, min(at, s.end-1)) }
