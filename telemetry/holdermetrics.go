package telemetry

import (
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

var holderMetrics = []definition{
	{name: MetricTagBytes, kind: gauge, labels: []string{"tag", "state"}, help: "Device memory by tag and state, padding included: live, pending, and quarantined by the guard; 64 tags, the rest as other. A tag that holds nothing is 0."},
	{name: MetricTagBlocks, kind: gauge, labels: []string{"tag", "state"}, help: "Blocks by tag and state; 64 tags, the rest as other. A tag that holds nothing is 0."},
}

// holderStates are those in which a block is held.
var holderStates = [...]core.BlockState{core.Live, core.Retired, core.Quarantined}

// holderCollector sends what the tags hold that have series of their own, and the
// rest. If nobody else looks at the tags, each scrape does.
func (s Source) holderCollector() func(out emitter) {
	tags := s.Tags
	if tags == nil {
		tags = NewTagSeries()
	}
	return func(out emitter) {
		holders := s.Holders()
		if s.Tags == nil {
			tags.Look(time.Now(), holders)
		}
		for tag, sums := range tags.sums(holders) {
			for i, state := range holderStates {
				out.send(MetricTagBytes, sums[i].Bytes, string(tag), stateLabel(state))
				out.send(MetricTagBlocks, sums[i].Blocks, string(tag), stateLabel(state))
			}
		}
	}
}

// held is what a tag holds, by the states of holderStates.
type held [len(holderStates)]core.Amount

// sums is what each member holds, and all others as [OtherTag]; those are left
// out only while no tag can be one.
func (s *TagSeries) sums(holders []core.Holder) map[core.Tag]*held {
	members := *s.members.Load()
	sums := make(map[core.Tag]*held, len(members)+1)
	for tag := range members {
		sums[tag] = &held{}
	}
	if len(members) >= MaxTags {
		sums[OtherTag] = &held{}
	}
	for _, h := range holders {
		sum := sums[labelOf(h.Tag)]
		if sum == nil {
			if sum = sums[OtherTag]; sum == nil {
				sum = &held{}
				sums[OtherTag] = sum
			}
		}
		for i, state := range holderStates {
			if h.State == state {
				sum[i].Bytes += h.Bytes
				sum[i].Blocks += h.Blocks
			}
		}
	}
	return sums
}

// stateLabel is the label of a state in metrics. What a retired block holds
// is called pending there, as in [core.Stats].
func stateLabel(s core.BlockState) string {
	if s == core.Retired {
		return "pending"
	}
	return s.String()
}
