package debugguard

import (
	"math"
	"math/rand/v2"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/quick"
)

// quickGuard serves blocks that only the ledger knows, and that keep no stacks.
type quickGuard struct {
	r     *Resource
	below *quick.Path
}

// countdowns are the bytes that a lane may still allocate before the next block that is
// sampled, and before the next that keeps its stacks. The gaps are drawn anew from an
// exponential distribution, so that each byte has the same chance whatever was drawn
// before. The lane's lock guards them. Who serves an operation takes its bytes off; who declines it leaves
// them, so that it meets the same answer on the ordinary way.
type countdowns struct {
	// rules is what untilSample was drawn by.
	rules       *rules
	untilSample int64
	untilStack  int64
	// shard is where the ledger counts the lane's blocks, nil until Prepare.
	shard *ledger.Shard
}

// laneOf is the lane of a stream, with a shard of the ledger for it; nil if the stream has none. No
// lock may be held.
func (r *Resource) laneOf(stream core.StreamID) (*quick.Lane, *ledger.Shard) {
	l := r.path.Lane(stream)
	if l == nil {
		return nil, nil
	}
	return l, r.shardFor(l)
}

// Prepare gives a lane its shard of the ledger.
func (q *quickGuard) Prepare(l *quick.Lane) bool { return q.r.shardFor(l) != nil }

func (r *Resource) shardFor(l *quick.Lane) *ledger.Shard {
	if s := r.shardOf(l, nil); s != nil {
		return s
	}
	r.preparing.Lock()
	defer r.preparing.Unlock()
	if s := r.shardOf(l, nil); s != nil {
		return s
	}
	return r.shardOf(l, r.ledger.AddLane(l))
}

// shardOf is that of a lane, which becomes made if it has none.
func (r *Resource) shardOf(l *quick.Lane, made *ledger.Shard) *ledger.Shard {
	l.Lock()
	defer l.Unlock()
	c := r.countdownsOf(l, r.rules.Load())
	if c.shard == nil {
		c.shard = made
	}
	return c.shard
}

func (r *Resource) joinPath(below *quick.Path) {
	if r.path = below.Extend(r, &quickGuard{r, below}); r.path != nil {
		r.part = r.path.NewPart()
	}
}

// SharedRecords are those of the layers above: see package path.
func (r *Resource) SharedRecords() (core.Resource, *path.Records) { return r, r.records }

// QuickPath is the layer's, for the layers of this module: see package quick.
func (r *Resource) QuickPath() *quick.Path { return r.path }

// countdownsOf are those of a lane, which is locked, by the rules that hold now.
func (r *Resource) countdownsOf(l *quick.Lane, u *rules) *countdowns {
	c, _ := l.Part(r.part).(*countdowns)
	if c == nil {
		c = &countdowns{untilStack: gap(r.cfg.Advanced.StackBytes)}
		l.SetPart(r.part, c)
	}
	if c.rules != u {
		c.rules, c.untilSample = u, u.nextSample()
	}
	return c
}

// nextSample draws how many bytes go by before the next sampled one.
func (u *rules) nextSample() int64 {
	switch u.sampling.mean {
	case 0:
		return math.MaxInt64
	case 1:
		return 0
	}
	return gap(u.sampling.mean)
}

// gap draws from an exponential distribution.
func gap(mean uint64) int64 {
	return int64(min(rand.ExpFloat64()*float64(mean), math.MaxInt64/2))
}

// bytesChoose decides by its bytes whether a block is sampled.
func (r *Resource) bytesChoose(u *rules, req *core.Request) bool {
	l := r.path.Lane(req.Stream)
	if l == nil {
		return u.sampling.chooses(req.Bytes)
	}
	l.Lock()
	defer l.Unlock()
	c := r.countdownsOf(l, u)
	if c.untilSample -= int64(req.Bytes); c.untilSample >= 0 {
		return false
	}
	c.untilSample = u.nextSample()
	return true
}

// note enters a block in the ledger, and decides by its bytes whether it keeps its stacks.
func (r *Resource) note(b *core.Block) (rec *ledger.Record, due bool) {
	of, born := r.records.Enter(b), monotime.Now()
	l, s := r.laneOf(b.ID.AllocStream)
	if l == nil {
		return r.ledger.Enter(of, b, born)
	}
	l.Lock()
	defer l.Unlock()
	due = r.countdownsOf(l, r.rules.Load()).takeStack(b.Bytes, r.cfg.Advanced.StackBytes)
	return r.ledger.EnterIn(s, of, b, born), due
}

func (c *countdowns) takeStack(bytes, mean uint64) (due bool) {
	if c.untilStack -= int64(min(bytes, ledger.AlwaysStacks)); c.untilStack < 0 {
		c.untilStack = gap(mean)
		return true
	}
	return false
}

// Allocate declines a block that may be guarded, or keep its stacks.
func (q *quickGuard) Allocate(o *quick.Op) bool {
	r, req := q.r, &o.Request
	if r.gate.Load() == 0 {
		return q.below.Layer.Allocate(o)
	}
	u := r.rules.Load()
	switch {
	case u.setting.Mode == Off:
		return q.below.Layer.Allocate(o)
	case u.hunts(req.Tag):
		return false
	}
	c := r.countdownsOf(o.Lane, u)
	if c.shard == nil {
		o.Lacks = q
		return false
	}
	samples := u.setting.Mode >= Sample && r.cfg.Device != nil
	if samples {
		if len(u.rates) > 0 {
			if _, own := u.rates[req.Tag]; own {
				return false
			}
		}
		if c.untilSample < int64(req.Bytes) {
			return false
		}
	}
	if (req.Bytes >= ledger.AlwaysStacks || c.untilStack < int64(req.Bytes)) && r.ledger.Stacks.CouldAfford(o.Began) {
		return false
	}
	if !q.below.Layer.Allocate(o) {
		return false
	}
	if samples {
		c.untilSample -= int64(req.Bytes)
	}
	c.takeStack(req.Bytes, r.cfg.Advanced.StackBytes)
	r.ledger.EnterIn(c.shard, o.Record, &o.Block, o.Ended)
	return true
}

// Deallocate declines a block that the guard has more of than its record. The notice closes that.
func (q *quickGuard) Deallocate(o *quick.Op) bool {
	r, g := q.r, o.ID.Generation
	if r.gate.Load() == 0 {
		ok := q.below.Layer.Deallocate(o)
		o.Hear[1] = &r.listeners
		return ok
	}
	if r.rules.Load().setting.Mode == Off || o.ID.Ordinal != r.ordinal {
		return false
	}
	rec := r.ledger.Known(o.Record, g)
	c, _ := o.Lane.Part(r.part).(*countdowns)
	if c == nil || rec == nil || rec.Guard != nil || r.seals.get(g) != nil || !rec.Retire(g) {
		return false
	}
	if !c.shard.Has(rec) || !rec.Contains(o.ID.Ptr) || rec.Stacked || !q.below.Layer.Deallocate(o) {
		r.revive(rec, g)
		return false
	}
	r.ledger.CloseIn(c.shard, rec, o.ID)
	o.Hear[1] = &r.listeners
	return true
}
