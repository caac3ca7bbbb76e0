package budget

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// tally is what one tag holds on one stream.
type tally struct {
	tag  core.Tag
	told uint32 // see tagNews
	// in is what it holds by the state that callers see: what a guard above
	// withholds is quarantined, though live to all calls. in[0] is what was asked for.
	in [core.Freed]sum
	_  [40]byte // makes 128 bytes: the tallies of two streams share no cache line, nor a pair of them
}

func (t *tally) idle() bool {
	return !slices.ContainsFunc(t.in[:], func(s sum) bool { return s.blocks > 0 })
}

type sum struct{ bytes, blocks uint64 }

func (s *sum) add(bytes uint64) { s.bytes, s.blocks = s.bytes+bytes, s.blocks+1 }
func (s *sum) sub(bytes uint64) { s.bytes, s.blocks = s.bytes-bytes, s.blocks-1 }

// tagNews tells which tags are in use. Each tally remembers the round in which it
// was last told of, so that an allocation compares a number that changes seldom.
// Without a listener that is 0, as in every tally.
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

// Holders is what each tag holds, live (core.Live), pending (core.Retired) and
// withheld by a guard above (core.Quarantined), largest first; the order of equals
// is by tag and state. What claims have set aside is in no block and not listed, nor is what the device was asked for
// and has not given yet. It locks each
// stream's books for a few tags at a time and makes no device call, so it can
// be read for metrics; each tag's bytes on a stream are of one instant, all
// together are not.
func (r *Resource) Holders() []core.Holder {
	held, _ := r.holdings(false)
	return held.list()
}

// holdings is what tags hold, by state.
type holdings map[holding]sum

type holding struct {
	tag   core.Tag
	state core.BlockState
}

func (h holdings) add(tag core.Tag, state core.BlockState, s sum) {
	if s.blocks > 0 {
		at := holding{tag, state}
		h[at] = sum{h[at].bytes + s.bytes, h[at].blocks + s.blocks}
	}
}

// list is the holdings as callers read them, largest first.
func (h holdings) list() []core.Holder {
	holders := make([]core.Holder, 0, len(h))
	for at, s := range h {
		holders = append(holders, core.Holder{Tag: at.tag, State: at.state, Bytes: s.bytes, Blocks: s.blocks})
	}
	slices.SortFunc(holders, func(a, b core.Holder) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.State, b.State))
	})
	return holders
}

// holdings is what is in blocks; and in those that are asked for, as if they were live, if charged
// is set. It says how many of the pending bytes are lent.
func (r *Resource) holdings(charged bool) (held holdings, lent uint64) {
	held = holdings{}
	for _, l := range r.streams.list() {
		tallies, loans := l.snapshot()
		lent += loans
		for _, t := range tallies {
			for state, s := range t.in {
				if core.BlockState(state) != asked {
					held.add(t.tag, core.BlockState(state), s)
				} else if charged {
					held.add(t.tag, core.Live, s)
				}
			}
		}
	}
	return held, lent
}

// glimpse is how many tallies are copied at a time: an allocation on the stream
// waits for no more.
const glimpse = 64

// snapshot is a copy of the stream's tallies, and what is lent. When some are forgotten meanwhile,
// which is seldom, it begins again: others took their places.
func (l *streamLedger) snapshot() (seen []tally, lent uint64) {
	for forgotten, done := 0, false; !done; {
		seen = slices.Grow(seen, glimpse) // not under the lock
		l.mu.Lock()
		if l.forgotten != forgotten {
			forgotten, seen = l.forgotten, seen[:0]
		}
		for _, t := range l.order[len(seen):min(len(seen)+glimpse, len(l.order))] {
			seen = append(seen, *t)
		}
		done, lent = len(seen) == len(l.order), l.lent()
		l.mu.Unlock()
	}
	return seen, lent
}
