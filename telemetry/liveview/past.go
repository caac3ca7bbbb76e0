package liveview

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
)

// The bounds of a reconstructed past.
const (
	pastSpan   = 15 * time.Minute
	pastPoints = 300
	pastTags   = 16
)

// Past is what a device's log and its guard remember of the time before now.
// Events have lost their beginning, and Stays theirs.
type Past struct {
	// Events are the operations, in any order; EventsSince is from when on they
	// are all there, zero if none was given up.
	Events      []oplog.Event
	EventsSince time.Time
	// Releases: the events say when the device has passed a free. Without them
	// nothing is known of pending memory.
	Releases bool
	// Stays are what a guard held back, which the events call live; those that
	// ended after StaysSince are all there.
	Stays      []Stay
	StaysSince time.Time
	// OwnTag is of the guard's own blocks, quarantined all their life.
	OwnTag core.Tag
}

// Stay is a block that a guard held back. Until is zero as long as it does.
type Stay struct {
	Tag         core.Tag
	Bytes       uint64
	From, Until time.Time
}

// series is how memory was used until an instant, as the page draws it: at equal
// steps, what its tags had live and what was quarantined and pending. It begins
// where the history does.
type series struct {
	// T is seconds of Unix time.
	T    []float64 `json:"t"`
	Tags []string  `json:"tags"`
	// Live is of each tag, and Others of all the rest.
	Live        [][]uint64 `json:"live"`
	Others      []uint64   `json:"others"`
	Quarantined []uint64   `json:"quarantined"`
	Pending     []uint64   `json:"pending"` // null if the history does not say
}

// change is what happened to a tag's bytes at an instant.
type change struct {
	at                         time.Time
	tag                        string
	live, quarantined, pending int64
}

// changes are what the past says of bytes, each at its instant.
func (p *Past) changes() (list []change) {
	for i := range p.Events {
		e := &p.Events[i]
		if e.Err != nil || e.Block.Generation == 0 {
			continue
		}
		c, bytes := change{at: e.Time.Add(e.Duration)}, int64(e.Bytes)
		switch e.Op {
		case oplog.OpAllocate:
			c.live = bytes
		case oplog.OpDeallocate:
			c.live, c.pending = -bytes, bytes
		case oplog.OpRelease:
			c.pending = -bytes
		default:
			continue
		}
		if e.Tag == p.OwnTag && p.OwnTag != "" {
			c.live, c.quarantined = 0, c.live
		}
		c.tag = shownTag(e.Tag)
		list = append(list, c)
	}
	for _, s := range p.Stays {
		tag, bytes := shownTag(s.Tag), int64(s.Bytes)
		list = append(list, change{at: s.From, tag: tag, live: -bytes, quarantined: bytes})
		if !s.Until.IsZero() {
			list = append(list, change{at: s.Until, tag: tag, live: bytes, quarantined: -bytes})
		}
	}
	return list
}

// begin is from when on the past says everything, of a list of its changes.
func (p *Past) begin(now time.Time, list []change) time.Time {
	begin := now
	for i := range list {
		if list[i].at.Before(begin) {
			begin = list[i].at
		}
	}
	for _, since := range []time.Time{p.EventsSince, p.StaysSince, now.Add(-pastSpan)} {
		if since.After(begin) {
			begin = since
		}
	}
	return begin
}

// reconstruct goes back from what is held now to what was held before, by undoing what
// has happened in between. What is held belongs to an instant, and the events to one that
// is later: so no event is missing that is to be undone but of operations under way.
func (s *Source) reconstruct() series {
	now, holders := time.Now(), s.Holders()
	p := s.Past()
	list := p.changes()
	begin := p.begin(now, list)
	list = slices.DeleteFunc(list, func(c change) bool { return !c.at.After(begin) || c.at.After(now) })
	current := byTag(holders)
	slot, names := slots(list, current)
	step := now.Sub(begin) / (pastPoints - 1)
	if step <= 0 {
		return series{T: []float64{}, Tags: []string{}, Live: [][]uint64{}, Others: []uint64{}, Quarantined: []uint64{}}
	}
	live, others := make([]row, len(names)+1), len(names) // of the tags, and of all others
	var quarantined, pending row
	for _, t := range current {
		live[slot(t.Tag)].now += int64(t.Live)
		quarantined.now += int64(t.Quarantined)
		pending.now += int64(t.Pending)
	}
	for _, c := range list {
		// The change is undone in every point before it.
		point := max(pastPoints-1-int(now.Sub(c.at)/step), 0)
		live[slot(c.tag)].changed[point] += c.live
		quarantined.changed[point] += c.quarantined
		pending.changed[point] += c.pending
	}
	out := series{Tags: names, Live: [][]uint64{}}
	for i := range pastPoints {
		at := now.Add(-step * time.Duration(pastPoints-1-i))
		out.T = append(out.T, float64(at.UnixMicro())/1e6)
	}
	for i := range names {
		out.Live = append(out.Live, live[i].before())
	}
	out.Others, out.Quarantined = live[others].before(), quarantined.before()
	if p.Releases {
		out.Pending = pending.before()
	}
	return out
}

// slots gives the tags that had most a row each, and all others one behind.
func slots(list []change, tags []tagged) (slot func(tag string) int, names []string) {
	weight := map[string]uint64{}
	for _, t := range tags {
		weight[t.Tag] += t.bytes()
	}
	for _, c := range list {
		weight[c.tag] += uint64(max(c.live, 0))
	}
	names = slices.AppendSeq([]string{}, maps.Keys(weight))
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(weight[b], weight[a]), cmp.Compare(a, b)) })
	names = names[:min(len(names), pastTags)]
	return func(tag string) int {
		if i := slices.Index(names, tag); i >= 0 {
			return i
		}
		return len(names)
	}, names
}

// row is what is held now, and in each point what has changed since the one
// before.
type row struct {
	now     int64
	changed [pastPoints]int64
}

// before is the bytes in every point. What was under way may leave a rest: there
// are no fewer than none.
func (r *row) before() []uint64 {
	out, bytes := make([]uint64, pastPoints), r.now
	for i := pastPoints - 1; i >= 0; i-- {
		out[i] = uint64(max(bytes, 0))
		bytes -= r.changed[i]
	}
	return out
}
