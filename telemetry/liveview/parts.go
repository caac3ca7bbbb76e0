package liveview

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// The bounds of the parts of a state.
const (
	maxTags    = 64
	maxStreams = 64
	maxPoints  = 64 // of one stream's clock
	maxNews    = 32 // findings, and refusals
)

// tagged is what a tag is charged for. The sum of what is left out has no tag.
type tagged struct {
	Tag           string `json:"tag,omitempty"`
	Live          uint64 `json:"live"`
	LiveBlocks    uint64 `json:"live_blocks"`
	Pending       uint64 `json:"pending"`
	PendingBlocks uint64 `json:"pending_blocks"`
	// Quarantined is what the guard holds back.
	Quarantined       uint64 `json:"quarantined"`
	QuarantinedBlocks uint64 `json:"quarantined_blocks"`
	// Others is how many tags a sum is of.
	Others int `json:"others,omitempty"`
}

func (t *tagged) add(o tagged) {
	t.Live, t.LiveBlocks = t.Live+o.Live, t.LiveBlocks+o.LiveBlocks
	t.Pending, t.PendingBlocks = t.Pending+o.Pending, t.PendingBlocks+o.PendingBlocks
	t.Quarantined, t.QuarantinedBlocks = t.Quarantined+o.Quarantined, t.QuarantinedBlocks+o.QuarantinedBlocks
}

func (t *tagged) bytes() uint64 { return t.Live + t.Pending + t.Quarantined }

// shownTag is what the page knows a tag by.
func shownTag(tag core.Tag) string {
	return clip(strings.ToValidUTF8(string(tag.OrUntagged()), "\uFFFD"), maxTagText)
}

// byTag adds up what each tag has. Tags that are shown alike are one.
func byTag(holders []core.Holder) []tagged {
	list := []tagged{}
	index := map[string]int{}
	for _, h := range holders {
		name := shownTag(h.Tag)
		i, ok := index[name]
		if !ok {
			i = len(list)
			index[name] = i
			list = append(list, tagged{Tag: name})
		}
		switch h.State {
		case core.Retired:
			list[i].add(tagged{Pending: h.Bytes, PendingBlocks: h.Blocks})
		case core.Quarantined:
			list[i].add(tagged{Quarantined: h.Bytes, QuarantinedBlocks: h.Blocks})
		default:
			list[i].add(tagged{Live: h.Bytes, LiveBlocks: h.Blocks})
		}
	}
	return list
}

// tags is the tags that have most, largest first, and the sum of the others.
func tags(holders []core.Holder) []tagged {
	list := byTag(holders)
	slices.SortStableFunc(list, func(a, b tagged) int {
		return cmp.Or(cmp.Compare(b.bytes(), a.bytes()), cmp.Compare(a.Tag, b.Tag))
	})
	if len(list) <= maxTags {
		return list
	}
	sum := tagged{Others: len(list) - maxTags}
	for _, t := range list[maxTags:] {
		sum.add(t)
	}
	return append(list[:maxTags], sum)
}

// streamsOf bounds the list, leased streams first.
func streamsOf(s Streams, now time.Time) object {
	unleased := func(one core.StreamInfo) int {
		if one.Lease != nil {
			return 0
		}
		return 1
	}
	slices.SortFunc(s.List, func(a, b core.StreamInfo) int {
		return cmp.Or(unleased(a)-unleased(b), a.Number-b.Number)
	})
	list := []object{}
	for _, one := range s.List[:min(len(s.List), maxStreams)] {
		list = append(list, streamOf(one, now))
	}
	st := &s.Stats
	return object{"limit", st.Max, "leased", st.Leased, "idle", st.Idle, "adopted", st.Adopted, "waiting", st.Waiting,
		"list", list, "omitted", len(s.List) - len(list)}
}

func streamOf(s core.StreamInfo, now time.Time) object {
	out := object{"number", s.Number, "busy", s.Busy, "capturing", s.Capturing, "seq", s.Seq, "completed", s.Completed,
		"after", s.After[:min(len(s.After), maxPoints)], "last", clip(s.Last.Launch, maxTagText),
		"open_launches", s.OpenLaunches, "pending_frees", s.PendingFrees, "pending_bytes", s.PendingBytes,
		"launches", s.Launches, "waits_queued", s.WaitsQueued, "waits_elided", s.WaitsElided}
	if s.Default {
		out = append(out, "name", core.DefaultStream.String())
	}
	if l := s.Lease; l != nil {
		out = append(out, "lease", uint64(l.ID), "tag", clip(string(l.Tag), maxTagText), "adopted", l.Adopted,
			"age_ms", age(now, l.Since), "at", caller(l.Stack))
	}
	return out
}
