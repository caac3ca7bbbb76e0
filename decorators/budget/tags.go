package budget

import (
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

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

// of tells of t, once in a round; the lock of its lane must be held.
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
