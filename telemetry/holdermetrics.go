package telemetry

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost-gpu/fencepost/core"
)

var holderMetrics = []definition{
	{name: MetricTagBytes, kind: gauge, labels: []string{"tag", "state"}, help: "Device memory by tag and state, padding included; the largest tags, the rest as other."},
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

type holderKey struct {
	tag   core.Tag
	state core.BlockState
}

// capHolders sums holders by tag and state, keeping the [MaxTags] tags that
// hold the most and the rest as [OtherTag]. Largest first is what an on-call
// engineer asks for; the price is that a tag at the edge comes and goes.
func capHolders(holders []core.Holder) []core.Holder {
	holders = slices.Clone(holders)
	tags := map[core.Tag]uint64{}
	for i := range holders {
		holders[i].Tag = core.Tag(strings.ToValidUTF8(string(holders[i].Tag.OrUntagged()), "\uFFFD"))
		tags[holders[i].Tag] += holders[i].Bytes
	}
	kept := largest(tags)
	sums := map[holderKey]core.Holder{}
	for _, h := range holders {
		if !kept[h.Tag] {
			h.Tag = OtherTag
		}
		sum := sums[holderKey{h.Tag, h.State}]
		h.Bytes += sum.Bytes
		h.Blocks += sum.Blocks
		sums[holderKey{h.Tag, h.State}] = h
	}
	return slices.Collect(maps.Values(sums))
}

// largest returns the MaxTags tags with the most bytes.
func largest(tags map[core.Tag]uint64) map[core.Tag]bool {
	order := slices.SortedFunc(maps.Keys(tags), func(a, b core.Tag) int {
		return cmp.Or(cmp.Compare(tags[b], tags[a]), cmp.Compare(a, b))
	})
	kept := map[core.Tag]bool{}
	for _, tag := range order[:min(len(order), MaxTags)] {
		kept[tag] = true
	}
	return kept
}
