package budget

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// tally is what one tag holds on one stream.
type tally struct {
	tag core.Tag
	// in is what it holds by the state that callers see: what a guard above
	// withholds is quarantined, though live to all calls.
	in   [core.Freed]sum
	told uint32   // see tagNews
	_    [44]byte // makes 128 bytes: the tallies of two streams share no cache line, nor a pair of them
}

func (t *tally) idle() bool {
	return !slices.ContainsFunc(t.in[:], func(s sum) bool { return s.blocks > 0 })
}

type sum struct{ bytes, blocks uint64 }

func (s *sum) add(bytes uint64) { s.bytes, s.blocks = s.bytes+bytes, s.blocks+1 }
func (s *sum) sub(bytes uint64) { s.bytes, s.blocks = s.bytes-bytes, s.blocks-1 }

// tagNews tells which tags are in use. Each tally remembers the round in which it
// was last told of, so that an allocation compares a number that changes seldom.
// Where nobody listens that is 0, as in every tally.
type tagNews struct {
	_     [64]byte // off the words that are written often
	round atomic.Uint32
	to    func(core.Tag)
	_     [64]byte
}

func (n *tagNews) tell(to func(core.Tag)) {
	if n.to = to; to != nil {
		n.round.Store(1)
	}
}

// of tells of t, once in a round; the lock of its stream ledger must be held.
func (n *tagNews) of(t *tally) {
	if round := n.round.Load(); t.told != round {
		t.told = round
		n.to(t.tag)
	}
}

// RenewTags has Config.OnTag told anew of each tag that is given memory from now
// on.
func (r *Resource) RenewTags() {
	if r.tags.to != nil {
		r.tags.round.Add(1)
	}
}

// holding is what a tag holds at an instant, by state.
type holding struct {
	tag core.Tag
	in  [core.Freed]sum
}

// Holders is what each tag holds, live (core.Live), pending (core.Retired) and
// withheld by a guard above (core.Quarantined), largest first; the order of equals
// is by tag and state. What claims have set aside is in no block and not listed. An allocation that the device has not answered yet is live. It locks each
// stream's books for a few tags at a time and makes no device call, so it can
// be read for metrics; each tag's bytes on a stream are of one instant, all
// together are not.
func (r *Resource) Holders() []core.Holder {
	holders := r.blockHolders()
	largestFirst(holders)
	return holders
}

func largestFirst(holders []core.Holder) {
	slices.SortFunc(holders, func(a, b core.Holder) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.State, b.State))
	})
}

func (r *Resource) blockHolders() []core.Holder {
	var all []holding
	for _, l := range r.streams.list() {
		all = l.appendTo(all)
	}
	all = sumByTag(all)
	holders := make([]core.Holder, 0, len(all))
	for i := range all {
		for state, s := range all[i].in {
			if s.blocks > 0 {
				holders = append(holders, core.Holder{Tag: all[i].tag, State: core.BlockState(state), Bytes: s.bytes, Blocks: s.blocks})
			}
		}
	}
	return holders
}

// glimpse is how many tags are read at a time: an allocation on the stream
// waits for no more.
const glimpse = 64

// appendTo appends what the stream's tags hold. When tags are forgotten
// meanwhile, which is seldom, it begins again: others took their places.
func (l *streamLedger) appendTo(all []holding) []holding {
	start := len(all)
	l.mu.Lock()
	forgotten := l.forgotten
	l.mu.Unlock()
	for from := 0; ; from += glimpse {
		all = slices.Grow(all, glimpse) // not under the lock
		l.mu.Lock()
		if l.forgotten != forgotten {
			forgotten, from, all = l.forgotten, 0, all[:start]
		}
		to := min(from+glimpse, len(l.order))
		for _, t := range l.order[min(from, to):to] {
			if !t.idle() {
				all = append(all, holding{t.tag, t.in})
			}
		}
		done := to == len(l.order)
		l.mu.Unlock()
		if done {
			return all
		}
	}
}

// sumByTag makes one of those of a tag, in place.
func sumByTag(all []holding) []holding {
	at := make(map[core.Tag]int, len(all))
	sums := all[:0]
	for _, h := range all {
		i, seen := at[h.tag]
		if !seen {
			at[h.tag] = len(sums)
			sums = append(sums, h)
			continue
		}
		for state := range h.in {
			sums[i].in[state] = sums[i].in[state].plus(h.in[state])
		}
	}
	return sums
}

func (s sum) plus(t sum) sum { return sum{s.bytes + t.bytes, s.blocks + t.blocks} }
