package debugguard

import (
	"math"
	"math/rand/v2"

	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// ordinary is the guard's share of ordinary operations: on blocks that it leaves alone. The ledger
// has them.
func (s share) ordinary() *path.Ordinary {
	r := s.r
	of := func(o *path.Step) *countdowns { return o.Lane.Part(r.path.Number()).(*countdowns) }
	return &path.Ordinary{
		Expects: s.expects,
		Passed: func(l *path.Lane, bytes int64) {
			c := l.Part(r.path.Number()).(*countdowns)
			if r.samples(c.rules) {
				c.untilSample -= bytes
			}
			if c.untilStack -= bytes; c.untilStack < 0 { // no stack could be afforded
				c.untilStack = gap(r.cfg.Advanced.StackBytes, rand.ExpFloat64)
			}
		},
		LeavesAlone: func(l *path.Lane, bytes, since int64, now monotime.Instant) bool {
			c := l.Part(r.path.Number()).(*countdowns)
			return c.off || bytes < ledger.AlwaysStacks && c.untilStack-since >= bytes || !r.ledger.Stacks.CouldAfford(now)
		},
		Retire: func(o *path.Step) bool {
			c := of(o)
			return c.off || r.seals.count.Load() == 0 && r.ledger.Keep(c.shard, o.Record, o.ID.Generation)
		},
		Allocated: func(o *path.Step) {
			if c := of(o); c.off {
				r.ledger.LetGo(o.Record)
			} else {
				r.ledger.Again(c.shard, o.Record, &o.Block, o.Began)
			}
		},
		Freed: func(o *path.Step) {
			if c := of(o); !c.off {
				r.ledger.Remember(c.shard, o.Record, o.ID.Generation)
			}
			if r.listeners.OffPath() {
				o.Then(r.listeners.ReleasedAtOnce)
			}
		},
		LetGo: r.ledgerLetGo,
	}
}

// ledgerLetGo is the ledger's LetGo. The path has it before there is a ledger.
func (r *Resource) ledgerLetGo(of *path.Record) { r.ledger.LetGo(of) }

// expects is how many bytes go by before the next block that is sampled. It is 0 while the guard
// may choose blocks for something else than their bytes.
func (s share) expects(l *path.Lane) int64 {
	r, u := s.r, s.r.rules.Load()
	c := r.countdownsOf(l, u)
	c.off = u.setting.Mode == Off
	switch {
	case !r.records.OfBackend():
		return 0
	case c.off && r.gate.Load() != 0: // some blocks are known from before
		return 0
	case c.off:
		return math.MaxInt64
	case u.setting.Mode == Hunt || len(u.hunted) > 0 || len(u.rates) > 0 || c.shard == nil:
		return 0
	case r.samples(u):
		return max(0, c.untilSample)
	}
	return math.MaxInt64
}
