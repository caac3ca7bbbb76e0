package telemetry

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
)

var holderMetrics = []definition{
	{name: MetricTagBytes, kind: gauge, labels: []string{"tag", "state"}, help: "Device memory by tag and state, padding included: live, what the guard holds in quarantine among it, and pending; the largest tags, the rest as other."},
	{name: MetricTagBlocks, kind: gauge, labels: []string{"tag", "state"}, help: "Blocks by tag and state; the largest tags, the rest as other."},
}

func (s Source) collectHolders(out emitter) {
	for _, h := range capHolders(s.Holders()) {
		out.send(MetricTagBytes, h.Bytes, string(h.Tag), stateLabel(h.State))
		out.send(MetricTagBlocks, h.Blocks, string(h.Tag), stateLabel(h.State))
	}
}

// stateLabel is the label of a state in metrics. What a retired block holds
// is called pending there, as in [core.Stats].
func stateLabel(s core.BlockState) string {
	if s == core.Retired {
		return "pending"
	}
	return s.String()
}

// capHolders sums holders by tag and state, keeping the [MaxTags] tags that
// hold the most and the rest as [OtherTag]. Largest first is what an on-call
// engineer asks for; the price is that a tag at the edge comes and goes.
func capHolders(holders []core.Holder) []core.Holder {
	type key struct {
		tag   core.Tag
		state core.BlockState
	}
	kept := largestTags(holders)
	sums := make(map[key]core.Holder, 3*len(kept))
	for _, h := range holders {
		h.Tag = labelOf(h.Tag)
		if !kept[h.Tag] {
			h.Tag = OtherTag
		}
		sum := sums[key{h.Tag, h.State}]
		h.Bytes += sum.Bytes
		h.Blocks += sum.Blocks
		sums[key{h.Tag, h.State}] = h
	}
	return slices.Collect(maps.Values(sums))
}

// labelOf is a tag as it can be a label.
func labelOf(t core.Tag) core.Tag {
	return core.Tag(strings.ToValidUTF8(string(t.OrUntagged()), "\uFFFD"))
}

// largestTags are the MaxTags tags with the most bytes.
func largestTags(holders []core.Holder) map[core.Tag]bool {
	type held struct {
		tag   core.Tag
		bytes uint64
	}
	at := make(map[core.Tag]int, len(holders))
	var tags []held
	for _, h := range holders {
		tag := labelOf(h.Tag)
		i, seen := at[tag]
		if !seen {
			i = len(tags)
			at[tag] = i
			tags = append(tags, held{tag: tag})
		}
		tags[i].bytes += h.Bytes
	}
	slices.SortFunc(tags, func(a, b held) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.tag, b.tag))
	})
	kept := make(map[core.Tag]bool, MaxTags)
	for _, t := range tags[:min(len(tags), MaxTags)] {
		kept[t.tag] = true
	}
	return kept
}
