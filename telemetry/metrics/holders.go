package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/blocks"
)

var holderMetrics = []family[map[core.Tag]*amounts]{
	{gauge("gpumem_tag_bytes", "Device memory by tag and state, padding included: live, pending, and quarantined by the guard; 64 tags, the rest as other. A tag that holds nothing is 0.", "tag", "state"), byTag(func(a core.Amount) uint64 { return a.Bytes })},
	{gauge("gpumem_tag_blocks", "Blocks by tag and state; 64 tags, the rest as other. A tag that holds nothing is 0.", "tag", "state"), byTag(func(a core.Amount) uint64 { return a.Blocks })},
}

// byTag is the samples of what amounts the tags hold.
func byTag(read func(core.Amount) uint64) func(map[core.Tag]*amounts, sender) {
	return func(tags map[core.Tag]*amounts, out sender) {
		for tag, amounts := range tags {
			for i, state := range holderStates {
				out.count(read(amounts[i]), string(tag), blocks.StateName(state))
			}
		}
	}
}

// holderStates are those in which a block is held.
var holderStates = [...]core.BlockState{core.Live, core.Retired, core.Quarantined}

// amountsByTag is what the tags hold that have series of their own, and the rest; nil
// if the source does not say. If nobody else looks at the tags, each scrape does.
func (s Source) amountsByTag() func() map[core.Tag]*amounts {
	if s.Holders == nil {
		return nil
	}
	tags := cmp.Or(s.Tags, NewTagSeries())
	return func() map[core.Tag]*amounts {
		holders := s.Holders()
		if s.Tags == nil {
			tags.Look(time.Now(), holders)
		}
		return tags.sums(holders)
	}
}

// amounts is what a tag holds, by the states of holderStates.
type amounts [len(holderStates)]core.Amount

// sums is what each member holds, and all others as [OtherTag]; those are left
// out only while no tag can be one.
func (s *TagSeries) sums(holders []core.Holder) map[core.Tag]*amounts {
	members := *s.members.Load()
	sums := make(map[core.Tag]*amounts, len(members)+1)
	for tag := range members {
		sums[tag] = &amounts{}
	}
	if len(members) >= MaxTags {
		sums[OtherTag] = &amounts{}
	}
	for _, h := range holders {
		tag := labelOf(h.Tag)
		if sums[tag] == nil {
			tag = OtherTag
		}
		if sums[tag] == nil {
			sums[tag] = &amounts{}
		}
		if i := slices.Index(holderStates[:], h.State); i >= 0 {
			sums[tag][i].Bytes += h.Bytes
			sums[tag][i].Blocks += h.Blocks
		}
	}
	return sums
}
