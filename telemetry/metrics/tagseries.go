package metrics

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/telemetry/internal/blocks"
)

// MaxTags is the number of tags that are told apart, in metrics and in
// counts of findings; what the others have is summed under [OtherTag].
const MaxTags = 64

// OtherTag stands for all tags beyond [MaxTags].
const OtherTag core.Tag = "other"

const (
	// tagIdle is how long a tag must have had no memory before another may take
	// its place, and how long it has that place for certain.
	tagIdle = 10 * time.Minute
	// tagRound is how long a tag must hold more than twice what another does to
	// take the place of that.
	tagRound = time.Minute
)

// TagSeries decides which tags have series of their own in metrics, [MaxTags] at
// most; all others are summed as [OtherTag]. A tag that is in stays in, with
// zeros while it holds nothing, so that its series have no gaps.
//
// While there is room a tag is in from its first memory on. When there is none, a
// tag that holds memory takes the place of the one that has had none for the
// longest time, if that is ten minutes or more; the largest comes first. If
// all had memory since, a tag that held more than twice as much throughout a minute
// as the smallest of those that held any takes the place of that, if it has been
// in for ten minutes. So a series that ends has been there for ten minutes,
// whatever comes and goes.
//
// The choice depends on when tags are used and on what they hold at each look, not
// on scrapes. All methods are safe for concurrent use and do not block.
type TagSeries struct {
	// members are by label. The map is replaced, never changed; mu is held for
	// that and guards the rest.
	members atomic.Pointer[map[core.Tag]*tagMember]
	mu      sync.Mutex
	// lows is the least that each of the largest tags outside held at the looks of
	// this round.
	lows map[core.Tag]uint64
	ends time.Time
	// over is what the tags held when most was live in the last whole minute of
	// the clock, underWay in that of now.
	over, underWay tagPeak
}

// tagPeak is what tags with series held live at one moment of a minute.
type tagPeak struct {
	minute int64 // since 1970
	total  uint64
	byTag  map[core.Tag]uint64
}

// tagMember is a tag that has series of its own.
type tagMember struct {
	used atomic.Bool // since the last look
	// in is when it was first looked at, had when it last had memory.
	in, had time.Time
	// high is the most that it held at the looks of this round.
	high uint64
}

// NewTagSeries returns a set without a tag.
func NewTagSeries() *TagSeries {
	s := &TagSeries{}
	s.members.Store(&map[core.Tag]*tagMember{})
	return s
}

// Used says that a tag is given memory. To say so once between two looks is
// enough. It takes no lock unless there is room for a tag that is not in.
func (s *TagSeries) Used(tag core.Tag) {
	tag = tag.OrUntagged()
	members := *s.members.Load()
	if m := members[tag]; m != nil {
		if !m.used.Load() {
			m.used.Store(true)
		}
		return
	}
	if len(members) >= MaxTags {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enter(tag, "", &tagMember{})
	if m := (*s.members.Load())[tag]; m != nil {
		m.used.Store(true)
	}
}

// Look takes in what all tags hold now. It is to be called about once a second.
func (s *TagSeries) Look(now time.Time, holders []core.Holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	members := *s.members.Load()
	outside := s.note(now, holders)
	for _, t := range outside {
		idle := ""
		if len(members) >= MaxTags {
			if idle = string(s.idlest(now)); idle == "" {
				break
			}
		}
		s.enter(t.tag, core.Tag(idle), &tagMember{in: now, had: now, high: t.bytes})
		members = *s.members.Load()
	}
	s.compare(now, outside)
}

// Glance takes in what all tags hold live at one moment, of which the one counts in
// each minute of the clock at which they held most. It is to be called many times a
// second.
func (s *TagSeries) Glance(now time.Time, holders []core.Holder) {
	total := uint64(0)
	for _, h := range holders {
		if h.State == core.Live {
			total += h.Bytes
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	minute := now.Unix() / 60
	if s.underWay.minute != minute {
		s.over, s.underWay = s.underWay, tagPeak{minute: minute}
		if s.over.minute < minute-1 { // there was no look
			s.over = tagPeak{}
		}
	}
	if total <= s.underWay.total {
		return
	}
	s.underWay.total, s.underWay.byTag = total, map[core.Tag]uint64{}
	for tag, amounts := range s.sums(holders) {
		s.underWay.byTag[tag] = amounts[0].Bytes
	}
}

// peak is what each tag held when most was live in the last whole minute, or in the
// one under way where that is more already.
func (s *TagSeries) peak() map[core.Tag]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.over
	if s.underWay.total > at.total {
		at = s.underWay
	}
	held := map[core.Tag]uint64{}
	for tag := range s.sums(nil) {
		held[tag] = 0
	}
	maps.Copy(held, at.byTag)
	return held
}

// tagBytes is what a tag holds, in all states.
type tagBytes struct {
	tag   core.Tag
	bytes uint64
}

// largestFirst orders tags by what they hold, and equals by name.
func largestFirst(a, b tagBytes) int {
	return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.tag, b.tag))
}

// note brings the members up to date and returns the other tags.
func (s *TagSeries) note(now time.Time, holders []core.Holder) (outside []tagBytes) {
	members, bytes := *s.members.Load(), map[core.Tag]uint64{}
	for _, h := range holders {
		bytes[h.Tag.OrUntagged()] += h.Bytes
	}
	for tag, m := range members {
		if m.in.IsZero() {
			m.in = now
		}
		if m.used.Swap(false) || bytes[tag] > 0 {
			m.had = now
		}
		m.high = max(m.high, bytes[tag])
		delete(bytes, tag)
	}
	for tag, n := range bytes {
		if n > 0 && tag != OtherTag {
			outside = append(outside, tagBytes{tag, n})
		}
	}
	slices.SortFunc(outside, largestFirst)
	return outside
}

// idlest is the tag that has had no memory for the longest time, "" if none was
// idle for long enough.
func (s *TagSeries) idlest(now time.Time) (tag core.Tag) {
	since := now.Add(-tagIdle)
	for t, m := range *s.members.Load() {
		if !m.had.IsZero() && !m.had.After(since) && (tag == "" || m.had.Before(since) || t < tag) {
			tag, since = t, m.had
		}
	}
	return tag
}

// compare keeps the lows of the tags outside, and at the end of a round gives the
// places of small members to much larger tags.
func (s *TagSeries) compare(now time.Time, outside []tagBytes) {
	members, lows := *s.members.Load(), map[core.Tag]uint64{}
	for _, t := range outside {
		if members[t.tag] != nil {
			continue // just now
		}
		if s.lows == nil {
			if len(lows) < MaxTags {
				lows[t.tag] = t.bytes
			}
		} else if low, always := s.lows[t.tag]; always {
			lows[t.tag] = min(low, t.bytes)
		}
	}
	if s.lows == nil {
		s.ends = now.Add(tagRound)
	}
	s.lows = lows
	if now.Before(s.ends) {
		return
	}
	s.displace(now)
	s.lows = nil
	for _, m := range *s.members.Load() {
		m.high = 0
	}
}

// displace lets the largest of the tags outside take the places of the smallest
// members.
func (s *TagSeries) displace(now time.Time) {
	var large, small []tagBytes
	for tag, low := range s.lows {
		large = append(large, tagBytes{tag, low})
	}
	for tag, m := range *s.members.Load() {
		if m.high > 0 && now.Sub(m.in) >= tagIdle { // or else it waits for being idle
			small = append(small, tagBytes{tag, m.high})
		}
	}
	slices.SortFunc(large, largestFirst)
	slices.SortFunc(small, func(a, b tagBytes) int { return largestFirst(b, a) })
	for i := range min(len(large), len(small)) {
		if large[i].bytes/2 <= small[i].bytes {
			return
		}
		s.enter(large[i].tag, small[i].tag, &tagMember{in: now, had: now})
	}
}

// enter takes a tag in, in the place of another if there is no room; s.mu must be
// held.
func (s *TagSeries) enter(tag, instead core.Tag, m *tagMember) {
	next := maps.Clone(*s.members.Load())
	delete(next, instead)
	if tag == OtherTag || next[tag] != nil || len(next) >= MaxTags {
		return
	}
	next[tag] = m
	s.members.Store(&next)
}

var holderMetrics = []family[map[core.Tag]*amounts]{
	{gauge("gpumem_tag_bytes", "Device memory by tag and state, padding included: live, pending, and quarantined by the guard; 64 tags, the rest as other. A tag that holds nothing is 0.", "tag", "state"), byTag(func(a core.Amount) uint64 { return a.Bytes })},
	{gauge("gpumem_tag_blocks", "Blocks by tag and state; 64 tags, the rest as other. A tag that holds nothing is 0.", "tag", "state"), byTag(func(a core.Amount) uint64 { return a.Blocks })},
}

var tagPeakMetric = family[map[core.Tag]uint64]{gauge("gpumem_tag_window_peak_bytes", "What each tag held live, padding included, at the moment of the last whole minute of the clock, or of the one under way if it was more, at which most was live, of some 20 moments a second that are looked at; 64 tags, the rest as other.", "tag"), func(held map[core.Tag]uint64, out sender) {
	for tag, bytes := range held {
		out.count(bytes, string(tag))
	}
}}

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
// if the source does not say. If no other code looks at the tags, each scrape does.
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

// tagPeaks is what the tags held at the peak; nil if the source does not say. If no
// other code looks at the tags, each scrape does.
func (s Source) tagPeaks() func() map[core.Tag]uint64 {
	if s.Holders == nil {
		return nil
	}
	if s.Tags != nil {
		return s.Tags.peak
	}
	tags := NewTagSeries()
	return func() map[core.Tag]uint64 {
		now, holders := time.Now(), s.Holders()
		tags.Look(now, holders)
		tags.Glance(now, holders)
		return tags.peak()
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
		tag := h.Tag.OrUntagged()
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
