package debugguard

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/canary"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard/internal/ledger"
	"github.com/fencepost-gpu/fencepost/internal/cures"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

// share is the guard's share of the path. Under the lane's lock it serves blocks that only the ledger knows. Whether
// a block keeps its stacks is prepared, and so is a guarded block, and its free, as a whole: by a request of the
// guard's own to the layers beneath, with red zones and a launch that arms them.
type share struct{ r *Resource }

// How far the guard has come with an operation, by the number that it keeps there.
const (
	// passes: the layers beneath were asked, or are to be.
	passes = iota + 1
	// counted: and the block's bytes are off the countdowns.
	counted
)

// stackSkip leaves the frames of this package and of package path out of a stack.
const stackSkip = 4

// choice is what the guard keeps of an allocation.
type choice struct {
	// stacked: the block keeps its stacks, of which this one is the first.
	stacked bool
	stack   core.Stack
	span    core.SpanContext
	// unguarded: there was no memory for the red zones.
	unguarded bool
	waited    core.Wait // of what was tried before
}

// freeing is what the guard keeps of the free of a block that it has retired and that has more than its record.
type freeing struct {
	rec    *ledger.Record
	sealed *seal
}

// countdowns are the bytes that a lane may still allocate before the next block that is
// sampled, and before the next that keeps its stacks. The gaps are drawn anew from an
// exponential distribution, so that each byte has the same chance whatever was drawn
// before. The lane's lock guards them.
type countdowns struct {
	// rules is what untilSample was drawn by.
	rules       *rules
	untilSample int64
	untilStack  int64
	// random draws untilSample; nil is the process's own.
	random *rand.Rand
	// off: by the rules the guard does nothing.
	off bool
	// shard is where the ledger counts the lane's blocks, nil until an operation was prepared.
	shard *ledger.Shard
}

// Path is the layer's, for the layers of this module: see package path.
func (r *Resource) Path() *path.Path { return r.path }

// SharedRecords are those of the layers above: see package path.
func (r *Resource) SharedRecords() (core.Resource, *path.Records) { return r, r.records }

// shardFor is the ledger's shard of a lane, which is not locked.
func (r *Resource) shardFor(l *path.Lane) *ledger.Shard {
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
func (r *Resource) shardOf(l *path.Lane, made *ledger.Shard) *ledger.Shard {
	l.Lock()
	defer l.Unlock()
	c := r.countdownsOf(l, r.rules.Load())
	if c.shard == nil {
		c.shard = made
	}
	return c.shard
}

// countdownsOf are those of a lane, which is locked, by the rules that hold now.
func (r *Resource) countdownsOf(l *path.Lane, u *rules) *countdowns {
	c, _ := l.Part(r.path.Number()).(*countdowns)
	if c == nil {
		c = &countdowns{untilStack: gap(r.cfg.Advanced.StackBytes, rand.ExpFloat64)}
		if seed := r.cfg.Advanced.SampleSeed; seed != 0 {
			c.random = rand.New(rand.NewPCG(seed, r.lanes.Add(1)))
		}
		l.SetPart(r.path.Number(), c)
	}
	if c.rules != u {
		c.rules, c.untilSample = u, c.nextSample(u)
	}
	return c
}

// nextSample draws how many bytes go by before the next sampled one.
func (c *countdowns) nextSample(u *rules) int64 {
	switch u.sampling.mean {
	case 0:
		return math.MaxInt64
	case 1:
		return 0
	}
	if c.random != nil {
		return gap(u.sampling.mean, c.random.ExpFloat64)
	}
	return gap(u.sampling.mean, rand.ExpFloat64)
}

// gap draws from an exponential distribution.
func gap(mean uint64, draw func() float64) int64 {
	return int64(min(draw()*float64(mean), math.MaxInt64/2))
}

// bytesChoose decides by its bytes whether a block is sampled.
func (r *Resource) bytesChoose(u *rules, req *core.Request) bool {
	l := r.path.Lane(req.Stream)
	l.Lock()
	defer l.Unlock()
	c := r.countdownsOf(l, u)
	if c.untilSample -= int64(req.Bytes); c.untilSample >= 0 {
		return false
	}
	c.untilSample = c.nextSample(u)
	return true
}

func (c *countdowns) takeStack(bytes, mean uint64) (due bool) {
	if c.untilStack -= int64(min(bytes, ledger.AlwaysStacks)); c.untilStack < 0 {
		c.untilStack = gap(mean, rand.ExpFloat64)
		return true
	}
	return false
}

// Allocate declines a block that may be guarded, or keep its stacks, until that was decided.
func (s share) Allocate(o *path.Op) bool {
	r, state := s.r, o.Number(s.r.path)
	if o.Got == s.r.path { // the block is guarded
		return true
	}
	var u *rules
	var c *countdowns
	if r.gate.Load() != 0 {
		u = r.rules.Load()
		c = r.countdownsOf(o.Lane, u)
		if state == 0 && !r.leavesAlone(u, c, o) {
			return o.Decline(s.r.path)
		}
	}
	if !s.r.path.Below.Layer.Allocate(o) {
		o.KeepNumber(s.r.path, max(state, passes))
		return false
	}
	if c == nil || u.setting.Mode == Off || c.shard == nil {
		return true
	}
	if state != counted {
		if r.samples(u) {
			c.untilSample -= int64(o.Request.Bytes)
		}
		c.takeStack(o.Request.Bytes, r.cfg.Advanced.StackBytes)
	}
	rec := r.ledger.Enter(c.shard, r.records.Served(o), &o.Block, o.Ended)
	if k, ok := o.Kept(s.r.path).(*choice); ok && k.stacked {
		rec.Stacked = true // the caller has not got the block yet
		if rec.Lock(o.Block.ID.Generation) {
			rec.SetAllocated(k.stack, k.span)
			rec.Unlock()
		}
	}
	return true
}

// samples reports whether some blocks are guarded for their bytes or their tags.
func (r *Resource) samples(u *rules) bool { return u.setting.Mode >= Sample && r.cfg.Device != nil }

// leavesAlone reports whether a block is neither guarded nor keeps stacks, without a draw.
func (r *Resource) leavesAlone(u *rules, c *countdowns, o *path.Op) bool {
	req := &o.Request
	switch {
	case u.setting.Mode == Off:
		return true
	case u.hunts(req.Tag) || c.shard == nil:
		return false
	}
	if r.samples(u) {
		if _, own := u.rates[req.Tag]; own || c.untilSample < int64(req.Bytes) {
			return false
		}
	}
	return req.Bytes < ledger.AlwaysStacks && c.untilStack >= int64(req.Bytes) || !r.ledger.Stacks.CouldAfford(o.Began)
}

// Deallocate declines a block that the guard has more of than its record. The notice closes that.
func (s share) Deallocate(o *path.Op) bool {
	r, g := s.r, o.ID.Generation
	state, kept := o.Number(s.r.path), o.Kept(s.r.path)
	if o.Got == s.r.path {
		return true
	}
	if gate := r.gate.Load(); state == passes || kept == nil && gate == 0 {
		o.NotAtOnce = o.NotAtOnce || gate != 0 // the notice closes a record, if there is one
		if !s.r.path.Below.Layer.Deallocate(o) {
			o.KeepNumber(s.r.path, passes)
			return false
		}
		return s.freed(o)
	}
	c, _ := o.Lane.Part(s.r.path.Number()).(*countdowns)
	rec, _ := kept.(*ledger.Record)
	if kept == nil {
		if r.rules.Load().setting.Mode == Off || o.ID.Ordinal != r.ordinal {
			return o.Decline(s.r.path)
		}
		rec = r.ledger.Known(r.records.Served(o), g)
		if c == nil || rec == nil || rec.Guard != nil || r.seals.count.Load() > 0 || !rec.Contains(o.ID.Ptr) ||
			rec.Stacked || !rec.Retire(g) {
			return o.Decline(s.r.path)
		}
	}
	if o.Got == nil && (rec == nil || c == nil || !c.shard.Has(rec)) {
		o.NotAtOnce = true // the notice closes the record, which may have happened where the block is freed already
	}
	if !s.r.path.Below.Layer.Deallocate(o) {
		if kept == nil {
			o.Keep(s.r.path, rec)
		}
		return false
	}
	if o.AtOnce {
		r.ledger.CloseIn(c.shard, rec, o.ID)
	}
	return s.freed(o)
}

// freed has those hear who are off the path, if the block was freed at once.
func (s share) freed(o *path.Op) bool {
	if o.AtOnce && s.r.listeners.OffPath() {
		o.Settles(s.r.path)
	}
	return true
}

// Prepare chooses what becomes of a block, or does what comes before its free.
func (s share) Prepare(ctx context.Context, o *path.Op) error {
	if o.Free {
		return s.prepareFree(ctx, o)
	}
	r, req := s.r, &o.Request
	now := r.rules.Load()
	r.pollVerdicts(now)
	hunted, shard := now.hunts(req.Tag), r.shardFor(o.Lane)
	if now.setting.Mode == Off || shard == nil {
		o.KeepNumber(s.r.path, passes)
		return nil
	}
	var k choice
	if r.choose(now, hunted, req) {
		if l, ok := canary.LayoutFor(req.Bytes, r.cfg.Advanced.RedZone, !hunted); ok {
			err := s.allocateGuarded(ctx, o, hunted, l)
			if err == nil {
				return nil
			}
			if !cures.Short(err) {
				return err
			}
			r.hide(err) // the block goes without red zones
			k.unguarded = true
			k.waited = refuse.WaitOf(err)
			o.Waited = k.waited.For
		}
	}
	o.Lane.Lock()
	due := r.countdownsOf(o.Lane, now).takeStack(req.Bytes, r.cfg.Advanced.StackBytes)
	o.Lane.Unlock()
	if hunted || r.keepsStacks(req.Bytes, due) {
		k.stacked, k.stack, k.span = true, r.ledger.Stacks.Capture(stackSkip-1), r.spanIn(ctx)
	}
	if k.stacked || k.unguarded {
		kept := k
		o.Keep(s.r.path, &kept)
		o.Settles(s.r.path)
	}
	o.KeepNumber(s.r.path, counted)
	return nil
}

// Yield has nothing to give back: the guard keeps no memory for an operation.
func (s share) Yield(*path.Op, error) {}

// Settle ends what was done for an allocation, and a free that failed.
func (s share) Settle(_ context.Context, o *path.Op, err error) error {
	if o.Free {
		return s.settleFree(o, err)
	}
	if k, _ := o.Kept(s.r.path).(*choice); k != nil {
		switch {
		case err != nil:
			err = refuse.Waited(err, k.waited, o.Request.Bytes, o.Request.Tag)
		case k.unguarded:
			s.r.count.unguarded.Add(1)
			fallthrough
		default:
			if k.stacked {
				s.r.tellStack(o.Block.Bytes, o.Block.Tag, k.stack)
			}
		}
	}
	return err
}
