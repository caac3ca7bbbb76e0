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
	// Others is how many tags a sum is of.
	Others int `json:"others,omitempty"`
}

// tags adds up what each tag has, largest first. Tags that are shown alike are
// one, because the page knows them by what is shown.
func tags(holders []core.Holder) []tagged {
	list := []tagged{}
	index := map[string]int{}
	for _, h := range holders {
		name := clip(strings.ToValidUTF8(string(h.Tag.OrUntagged()), "\uFFFD"), maxTagText)
		i, ok := index[name]
		if !ok {
			i = len(list)
			index[name] = i
			list = append(list, tagged{Tag: name})
		}
		if h.State == core.Retired {
			list[i].Pending, list[i].PendingBlocks = list[i].Pending+h.Bytes, list[i].PendingBlocks+h.Blocks
		} else {
			list[i].Live, list[i].LiveBlocks = list[i].Live+h.Bytes, list[i].LiveBlocks+h.Blocks
		}
	}
	slices.SortStableFunc(list, func(a, b tagged) int {
		return cmp.Or(cmp.Compare(b.Live+b.Pending, a.Live+a.Pending), cmp.Compare(a.Tag, b.Tag))
	})
	if len(list) <= maxTags {
		return list
	}
	sum := tagged{Others: len(list) - maxTags}
	for _, t := range list[maxTags:] {
		sum.Live, sum.LiveBlocks = sum.Live+t.Live, sum.LiveBlocks+t.LiveBlocks
		sum.Pending, sum.PendingBlocks = sum.Pending+t.Pending, sum.PendingBlocks+t.PendingBlocks
	}
	return append(list[:maxTags], sum)
}

// settle bounds the list, leased streams first, and fills in what is for the
// page.
func (s *Streams) settle(now time.Time) {
	slices.SortStableFunc(s.List, func(a, b Stream) int {
		if (a.Lease != 0) != (b.Lease != 0) {
			return cmp.Compare(b.Lease, a.Lease)
		}
		return cmp.Compare(a.Number, b.Number)
	})
	if n := len(s.List) - maxStreams; n > 0 {
		s.List, s.Omitted = s.List[:maxStreams], n
	}
	for i := range s.List {
		one := &s.List[i]
		one.Tag, one.Last = clip(one.Tag, maxTagText), clip(one.Last, maxTagText)
		one.AgeMS, one.At = age(now, one.Since), caller(one.Where)
		one.After = one.After[:min(len(one.After), maxPoints)]
	}
}
