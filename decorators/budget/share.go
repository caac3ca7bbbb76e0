package budget

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

// share is the budget's share of the path. It serves what needs no recall of others' credit, in a
// stream ledger that the lane's lock guards; any other grant is prepared. A grant is kept in the operation
// from one try to the next, so that no layer beneath gets memory for which there is no budget.
type share struct{ r *Resource }

// Path is the layer's, for the layers of this module: see package path.
func (r *Resource) Path() *path.Path { return r.path }

// SharedRecords are those of the layers above: see package path.
func (r *Resource) SharedRecords() (core.Resource, *path.Records) { return r, r.records }

// keep is what the budget keeps of an allocation that was not served at once.
type keep struct {
	// claim is whose bytes are drawn, nil for the general ledger.
	claim *claim
	grant grant
	held  bool // the grant
}

func (k *keep) undo() {
	if k.held {
		k.held = false
		k.grant.undo()
	}
}

var keeps = sync.Pool{New: func() any { return new(keep) }}

func (s share) keepOf(o *path.Op) *keep {
	k, _ := o.Kept(s.r.path).(*keep)
	if k == nil {
		k = keeps.Get().(*keep)
		o.Keep(s.r.path, k)
	}
	return k
}

func (s share) drop(o *path.Op, k *keep) {
	o.Keep(s.r.path, nil)
	*k = keep{}
	keeps.Put(k)
}

// Allocate charges the request, if it was not charged before.
func (s share) Allocate(o *path.Op) bool {
	k, _ := o.Kept(s.r.path).(*keep)
	var g grant
	if k != nil && k.held {
		g = k.grant
	} else if !s.charge(o, k, &g) && (!o.Lane.SettleNow() || !s.charge(o, k, &g)) {
		return o.Decline(s.r.path)
	}
	if !s.r.path.Below.Layer.Allocate(o) {
		if k = s.keepOf(o); !k.held {
			g.count(asked)
			k.grant, k.held = g, true
			k.claim, _ = g.drawn.account.source.(*claim)
		}
		return false
	}
	if g.as == asked {
		o.Settles(s.r.path)
	}
	g.bind(o.Block.ID.Generation, s.r.part.Of(s.r.records.Served(o)))
	if k != nil {
		s.drop(o, k)
	}
	return true
}

func (s share) charge(o *path.Op, k *keep, g *grant) bool {
	l := s.r.streams.atHand(o.Request.Stream, o.Lane)
	if l == nil {
		return false
	}
	var c *claim
	if k != nil {
		c = k.claim
	}
	if o.Request.Claim == 0 {
		return s.r.fillFrom(l, &o.Request, c, g) == nil
	}
	c, _ = s.r.claims.find("Allocate", o.Request.Claim)
	if c == nil || s.r.fillFrom(l, &o.Request, c, g) != nil {
		return false
	}
	o.Request.Claim = 0 // it means nothing to the layers below
	return true
}

// ordinary is the budget's share of ordinary operations. A kept block is charged still, like
// credit: it is kept while the stream ledger might have as much credit more, and a recall takes it
// ([path.Lane.Lock]).
func (s share) ordinary() *path.Ordinary {
	part := &s.r.part
	return &path.Ordinary{
		Expects: func(l *path.Lane) int64 {
			if ledger, _ := l.Part(s.r.path.Number()).(*streamLedger); ledger == nil || s.r.lends || !s.r.records.OfBackend() {
				return 0
			}
			return math.MaxInt64
		},
		MayKeep: func(o *path.Step) bool {
			rec := part.Of(o.Record)
			if !rec.isOf(o.ID.Generation) {
				return false
			}
			l := rec.ledger.Load()
			return l.mu == o.Lane && rec.account == &l.general && !rec.pending && rec.state == core.Live &&
				l.credit.ledger.leaves(l.credit.bytes+l.kept+rec.bytes)
		},
		Freed: func(o *path.Step) {
			rec := part.Of(o.Record)
			rec.ledger.Load().kept += rec.bytes
		},
		Allocated: func(o *path.Step) {
			rec := part.Of(o.Record)
			l := rec.ledger.Load()
			l.kept -= rec.bytes
			l.tags.of(rec.tally)
			rec.of.Store(uint64(o.Block.ID.Generation))
		},
		LetGo: func(of *path.Record) {
			if rec := part.Of(of); rec != nil {
				if g := core.Generation(rec.of.Load()); g != 0 {
					l := rec.ledger.Load()
					l.kept -= rec.bytes
					l.release(g, rec)
				}
			}
		},
	}
}

// Deallocate takes a block that is freed at once off the ledger.
func (s share) Deallocate(o *path.Op) bool {
	rec := s.r.part.Of(o.Record)
	if !rec.isOf(o.ID.Generation) || rec.ledger.Load().mu != o.Lane {
		o.NotAtOnce = true
	}
	if !s.r.path.Below.Layer.Deallocate(o) {
		return false
	}
	switch {
	case o.AtOnce:
		rec.ledger.Load().release(o.ID.Generation, rec)
	case o.Block.State != core.Freed: // else released has it
		o.Settles(s.r.path)
	}
	return true
}

// atHand is the ledger of a stream, if its lock is that of a lane, which is locked, and is found
// without another lock; else nil.
func (t *streamLedgers) atHand(id core.StreamID, of *path.Lane) *streamLedger {
	if t.byLane(of) {
		l, _ := of.Part(t.path.Number()).(*streamLedger)
		return l
	}
	if l := t.slot(id).Load(); l != nil && l.stream == id && l.mu == of && !l.dropped {
		return l
	}
	return nil
}

// Prepare charges the request.
func (s share) Prepare(_ context.Context, o *path.Op) (err error) {
	k := s.keepOf(o)
	if o.Request.Claim != 0 {
		if k.claim, err = s.r.claims.find("Allocate", o.Request.Claim); err != nil {
			return err
		}
		o.Request.Claim = 0 // it means nothing to the layers below
	}
	if short := s.r.obtain(&o.Request, k.claim, &k.grant); short != nil {
		short.tag = o.Request.Tag
		return short
	}
	k.held = true
	return nil
}

// shortage is the error of an account that lacks the bytes. The caller gets the explained refusal made from
// it; a layer that asks for that meanwhile gets the same.
type shortage struct {
	of      *Resource
	account account
	// remaining is what the account could have given when it refused, less than bytes. lendable is
	// how much of that is pending on the stream.
	bytes, remaining, lendable uint64
	tag                        core.Tag
	explained                  *core.OutOfBudgetError
}

func (s *shortage) Error() string { return fmt.Sprintf("%d bytes short of budget", s.bytes) }

// Is matches what the refusal does.
func (s *shortage) Is(target error) bool {
	if _, ok := s.account.(*claim); ok {
		return target == core.ErrClaimExceeded
	}
	return target == core.ErrOutOfBudget
}

// As explains a refusal.
func (s *shortage) As(target any) bool {
	to, ok := target.(**core.OutOfBudgetError)
	if ok {
		*to = s.refusal()
	}
	return ok
}

// refusal is the explanation, made if there is none yet.
func (s *shortage) refusal() *core.OutOfBudgetError {
	if s.explained == nil {
		s.Look()
	}
	return s.explained
}

// Look explains the shortage, and reports whether there is room for the request by now: then it is
// worth another try. Bytes that no stream's books had when they were read are on their way from one
// to another. The explanation counts them as live, so that its figures are those of the account
// that refused.
func (s *shortage) Look() (room bool) {
	e := s.of.explain(s)
	if s.explained = e; e.Remaining < e.Requested {
		return false
	}
	e.Live += e.Remaining - s.remaining
	e.Remaining = s.remaining
	return true
}

// shortageIn is the budget's own shortage, nil if err is something else.
func (r *Resource) shortageIn(err error) *shortage {
	if short, ok := errors.AsType[*shortage](err); ok && short.of == r {
		return short
	}
	return nil
}

// Yield gives the charge back, which others may need while memory is sought, and names the holders
// as they are now.
func (s share) Yield(o *path.Op, err error) {
	if k, _ := o.Kept(s.r.path).(*keep); k != nil {
		k.undo()
	}
	s.r.nameHolders(err)
}

// Settle gives the charge of a refused allocation back and explains the refusal, counts a block as live that was asked
// for, and one as pending that was not released as it was freed.
func (s share) Settle(ctx context.Context, o *path.Op, err error) error {
	if o.Free {
		if err == nil {
			s.r.retired(o)
		}
		return err
	}
	if err == nil {
		s.r.answered(o)
		return nil
	}
	k, _ := o.Kept(s.r.path).(*keep)
	if k == nil {
		return err
	}
	defer s.drop(o, k)
	k.undo()
	if short := s.r.shortageIn(err); short != nil {
		return s.r.refuse(ctx, &o.Request, short, refuse.WaitOf(err), o.Reaped())
	}
	s.r.nameHolders(err)
	return alsoReap(err, o.Reaped())
}

// alsoReap adds the error of the reap, if any, to err: it may be the reason,
// and a lost device must not go unnoticed.
func alsoReap(err, reaped error) error {
	if reaped == nil {
		return err
	}
	return fmt.Errorf("%w; the reap before the retry failed too: %w", err, reaped)
}

// answered counts a block as what it is that was asked for.
func (r *Resource) answered(o *path.Op) {
	rec, g := r.part.Of(r.records.Served(o)), o.Block.ID.Generation
	if l := rec.lock(g); l != nil {
		l.withhold(g, rec, stateOf(&o.Request))
		l.mu.Unlock()
	}
}

func (r *Resource) retired(o *path.Op) {
	rec := r.part.Of(r.records.Served(o)) // it may be released by now, and be another block's
	if l := rec.lock(o.ID.Generation); l != nil {
		l.retire(o.ID.Generation, rec)
		l.mu.Unlock()
	}
	r.ledger.tellRoom()
}
