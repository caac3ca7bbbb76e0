package coretest

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/fencepost-gpu/fencepost/core"
)

// mutant is the fake with some methods replaced by wrong ones.
type mutant struct {
	*Fake
	allocate   func(context.Context, core.Request) (core.Block, error)
	deallocate func(context.Context, core.BlockID) (core.Block, error)
	prepare    func(context.Context, core.UseRequest) (core.Ticket, error)
	finish     func(context.Context, core.Ticket) error
	abort      func(context.Context, core.Ticket) error
	record     func(context.Context, core.BlockID, core.StreamID) error
	reserve    func(context.Context, uint64, core.Tag) (core.Claim, error)
	drain      func(context.Context) error
	stats      func() core.Stats
	freedOn    func(core.StreamID) core.FreeCounters
	subscribe  func(core.Listener)
	blocksFunc func(func(core.BlockInfo) bool)
	state      func(core.BlockID) core.BlockState
	features   core.Features
}

func newMutant() *mutant {
	f := NewFake(0)
	return &mutant{Fake: f, allocate: f.Allocate, deallocate: f.Deallocate, prepare: f.PrepareUse, finish: f.FinishUse, abort: f.AbortUse,
		record: f.RecordUse, reserve: f.Reserve, drain: f.Drain, stats: f.Stats, freedOn: f.FreedOn, subscribe: f.Subscribe,
		blocksFunc: f.Inspect().Blocks, state: f.State, features: f.Features()}
}

func (m *mutant) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	return m.allocate(ctx, r)
}

func (m *mutant) Deallocate(ctx context.Context, id core.BlockID) (core.Block, error) {
	return m.deallocate(ctx, id)
}

func (m *mutant) PrepareUse(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
	return m.prepare(ctx, r)
}

func (m *mutant) RecordUse(ctx context.Context, id core.BlockID, s core.StreamID) error {
	return m.record(ctx, id, s)
}

func (m *mutant) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	return m.reserve(ctx, bytes, tag)
}

func (m *mutant) FinishUse(ctx context.Context, t core.Ticket) error { return m.finish(ctx, t) }
func (m *mutant) AbortUse(ctx context.Context, t core.Ticket) error  { return m.abort(ctx, t) }
func (m *mutant) Drain(ctx context.Context) error                    { return m.drain(ctx) }
func (m *mutant) Stats() core.Stats                                  { return m.stats() }
func (m *mutant) FreedOn(s core.StreamID) core.FreeCounters          { return m.freedOn(s) }
func (m *mutant) Subscribe(l core.Listener)                          { m.subscribe(l) }
func (m *mutant) Inspect() core.Inspector                            { return listing{m.Fake.Inspect(), m.blocksFunc} }
func (m *mutant) State(id core.BlockID) core.BlockState              { return m.state(id) }
func (m *mutant) Features() core.Features                            { return m.features }

func (m *mutant) subject() Subject {
	return Subject{Resource: m, Features: m.features, Streams: m.Streams,
		FailNextFree: func() { m.FailNext("Deallocate", errors.New("scripted failure")) }}
}

// onAllocate changes the block of each successful allocation.
func onAllocate(change func(b *core.Block)) func(*mutant) {
	return func(m *mutant) {
		m.allocate = func(ctx context.Context, r core.Request) (core.Block, error) {
			b, err := m.Fake.Allocate(ctx, r)
			if err == nil {
				change(&b)
			}
			return b, err
		}
	}
}

// onRequest changes each request before it is served.
func onRequest(change func(r *core.Request)) func(*mutant) {
	return func(m *mutant) {
		m.allocate = func(ctx context.Context, r core.Request) (core.Block, error) {
			change(&r)
			return m.Fake.Allocate(ctx, r)
		}
	}
}

// onID changes the handle in every operation that takes one.
func onID(change func(m *mutant, id core.BlockID) core.BlockID) func(*mutant) {
	return func(m *mutant) {
		m.deallocate = func(ctx context.Context, id core.BlockID) (core.Block, error) {
			return m.Fake.Deallocate(ctx, change(m, id))
		}
		m.record = func(ctx context.Context, id core.BlockID, s core.StreamID) error {
			return m.Fake.RecordUse(ctx, change(m, id), s)
		}
		onUses(func(r *core.UseRequest) {
			for i, u := range r.Uses {
				r.Uses[i].Block = change(m, u.Block)
			}
		})(m)
	}
}

// onUses changes each request for an intent; its slice of uses is a copy.
func onUses(change func(r *core.UseRequest)) func(*mutant) {
	return func(m *mutant) {
		m.prepare = func(ctx context.Context, r core.UseRequest) (core.Ticket, error) {
			r.Uses = append([]core.Use(nil), r.Uses...)
			change(&r)
			return m.Fake.PrepareUse(ctx, r)
		}
	}
}

// onFree changes what a deallocation answers.
func onFree(change func(id core.BlockID, b core.Block, err error) (core.Block, error)) func(*mutant) {
	return func(m *mutant) {
		m.deallocate = func(ctx context.Context, id core.BlockID) (core.Block, error) {
			b, err := m.Fake.Deallocate(ctx, id)
			return change(id, b, err)
		}
	}
}

func onStats(change func(s *core.Stats)) func(*mutant) {
	return func(m *mutant) {
		m.stats = func() core.Stats {
			s := m.Fake.Stats()
			change(&s)
			return s
		}
	}
}

// onNotice delivers each notice as often as times says, after change.
func onNotice(times int, change func(b *core.Block)) func(*mutant) {
	return func(m *mutant) {
		m.subscribe = func(l core.Listener) { m.Fake.Subscribe(&wrongNotices{listener: l, times: times, change: change}) }
	}
}

type wrongNotices struct {
	listener core.Listener
	times    int
	change   func(b *core.Block)
}

func (w *wrongNotices) Released(b core.Block) {
	w.change(&b)
	for range w.times {
		w.listener.Released(b)
	}
}

// claims is a small ledger, right but for what the mutants change.
type claims struct {
	*mutant
	limit uint64
	bug   string
	mu    sync.Mutex
	last  core.ClaimID
	open  map[core.ClaimID]uint64
}

func newClaims(bug string) Subject {
	m := newMutant()
	m.features |= core.Reservations
	c := &claims{mutant: m, limit: gib, bug: bug, open: map[core.ClaimID]uint64{}}
	s := m.subject()
	s.Resource, s.Budget = c, c.limit
	return s
}

func (c *claims) Reserve(_ context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes > c.limit {
		if c.bug == "a claim is cut to what is left" {
			bytes = c.limit
		} else {
			return core.Claim{}, &core.OutOfBudgetError{Requested: bytes, Remaining: c.limit, Limit: c.limit, Tag: tag}
		}
	}
	c.last++
	c.open[c.last] = bytes
	return core.Claim{ID: c.last, Bytes: bytes, Tag: tag.OrUntagged()}, nil
}

func (c *claims) ReleaseClaim(_ context.Context, id core.ClaimID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.open[id]; !ok && c.bug != "a claim can be released twice" {
		return &core.InvalidRequestError{Op: "ReleaseClaim", Field: "id", Reason: "no such claim"}
	}
	delete(c.open, id)
	return nil
}

func (c *claims) Allocate(ctx context.Context, r core.Request) (core.Block, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if left, ok := c.open[r.Claim]; r.Claim != 0 && (!ok || left < r.Bytes) && c.bug != "a released claim can be drawn from" {
		return core.Block{}, &core.OutOfBudgetError{Requested: r.Bytes, Limit: c.limit, Claim: r.Claim}
	} else if ok && c.bug != "an allocation does not draw from its claim" {
		c.open[r.Claim] = left - r.Bytes
	}
	return c.mutant.Allocate(ctx, r)
}

func (c *claims) Stats() core.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mutant.Stats()
	s.Limit, s.Claims = c.limit, uint64(len(c.open))
	for _, bytes := range c.open {
		s.Claimed += bytes
	}
	return s
}

// boaster is a decorator that claims what its upstream cannot do, and does
// not name it.
type boaster struct {
	*Faults
	claims core.Features
	name   string
}

func (b boaster) Features() core.Features { return b.Faults.Features() | b.claims }
func (b boaster) String() string          { return cmp.Or(b.name, b.Faults.String()) }
