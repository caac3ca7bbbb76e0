package budget

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/cures"
	"github.com/fencepost-gpu/fencepost/internal/path"
)

// Config configures a budget.
type Config struct {
	// Limit is the most bytes that may be charged; zero means no limit.
	Limit uint64
	// Events, if not nil, gets one oplog.Event of oplog.OpRefusal for each
	// request that the caller was refused. A guard above may ask again for what
	// was refused: leave it nil there, and the guard reports.
	Events oplog.Sink
	// Patience is how long a request that would be refused waits in all for the device to pass
	// memory that is freed, as long as that may make room, and no longer than its context. Zero means
	// that none waits. A debug guard above says it for the whole stack.
	Patience time.Duration
	// OnTag, if not nil, is told of a tag that is given memory: when that is for
	// the first time, and again after each [Resource.RenewTags], on each stream. It
	// is called with the stream's books locked, so it must return soon and call
	// nothing of the budget's.
	OnTag func(core.Tag)
	// OnShare, if not nil, is told by New of the share of the device that the limit stands for, in
	// bytes, and each time after it may have changed: the limit, if SetLimit or others have set
	// one, and else zero. A limit that is only what was available is no share. It must return soon
	// and call nothing of the budget's.
	OnShare func(bytes uint64)
}

// Resource is a budget around an upstream resource. It is safe for
// concurrent use; no method waits for the device except Drain, and Allocate and Reserve for so long
// as [Config].Patience says.
type Resource struct {
	upstream core.Resource
	events   oplog.Sink
	// lends is whether pending bytes may be lent. Where a free that is queued is released,
	// none that is pending is queued.
	lends bool

	ledger  ledger
	tags    tagNews
	streams streamLedgers
	claims  claimTable

	bounds    bounds
	onShare   func(bytes uint64)
	limitedBy atomic.Pointer[string] // names what bounds the limit; empty if that is the budget itself

	refusals atomic.Uint64

	path    *path.Path
	records *path.Records
	part    path.Part[record]
}

var _ core.Resource = (*Resource)(nil)

// New returns a budget around upstream and subscribes it to upstream's
// notices, so it must be made before anything is allocated through it. A
// limit of zero makes a ledger that refuses nothing until [Resource.SetLimit]
// sets one. A nil upstream is a core.InvalidRequestError.
func New(upstream core.Resource, cfg Config) (*Resource, error) {
	if upstream == nil {
		return nil, &core.InvalidRequestError{Op: "budget.New", Field: "upstream", Reason: "nil: give the resource to keep a ledger of"}
	}
	r := &Resource{upstream: upstream, events: cfg.Events, onShare: cfg.OnShare,
		lends: !upstream.Features().Has(core.OrderedRelease)}
	r.tags.tell(cfg.OnTag)
	r.streams.begin(&r.ledger, &r.tags, upstream, r.lends)
	r.SetLimit(cfg.Limit)
	below := path.Over(upstream, true)
	r.path = below.Extend(r, share{r}, share{r}.ordinary())
	r.path.Room().Join(r, upstream)
	r.path.Room().Configure(func(s *cures.Setup) { s.Patience = max(s.Patience, cfg.Patience) })
	r.streams.path = r.path
	r.records, r.part = path.Join[record](below, upstream)
	r.records.Subscribe(upstream, path.Listener{Hear: r.released})
	return r, nil
}

// bounds are what the limit follows from; of each, zero is none.
type bounds struct {
	mu                     sync.Mutex
	own, available, others uint64
	by                     string
}

// SetLimit changes the limit to bytes; zero removes it. It takes effect for
// the next request. A limit below what is charged revokes nothing: requests
// are refused until they fit again. It locks each stream's books for a moment.
// What [Resource.SetBounds] set stays.
func (r *Resource) SetLimit(bytes uint64) {
	r.follow(func(b *bounds) { b.own = bytes })
}

// SetBounds tells what there is, in bytes: available is the limit while none is set, and no limit
// is above what others allow; by names them, for refusals. Zero is no bound. It takes effect as
// SetLimit does, and locks the streams' books only if the limit changes.
func (r *Resource) SetBounds(available, others uint64, by string) {
	r.follow(func(b *bounds) { b.available, b.others, b.by = available, others, by })
}

// follow has the limit follow from changed bounds.
func (r *Resource) follow(change func(*bounds)) {
	b := &r.bounds
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
	limit, by := cmp.Or(b.own, b.available, math.MaxUint64), ""
	if b.others != 0 && b.others < limit {
		limit, by = b.others, b.by
	}
	r.limitedBy.Store(&by)
	if r.onShare != nil {
		share := limit
		if b.own|b.others == 0 {
			share = 0
		}
		r.onShare(share)
	}
	if limit == r.ledger.limit.Load() {
		return
	}
	r.streams.recallCredit(func() { r.ledger.limit.Store(limit) })
	r.ledger.tellRoom()
}

// Room is how many bytes of the limit are free, at least: what is pending, and what streams keep for their next
// allocations, does not count. It does not block.
func (r *Resource) Room() uint64 { return r.ledger.room(0) }

// NotifyRoom has f called, from now on, each time when a reservation may fit that did not:
// when bytes come back or will, or the limit is changed. nil ends that; a second f before is a
// mistake. f must not block nor call the budget. Meanwhile streams keep no credit.
func (r *Resource) NotifyRoom(f func()) {
	if f == nil {
		r.ledger.wake.Store(nil)
		r.ledger.recalls.Add(-1)
		return
	}
	r.ledger.recalls.Add(1)
	r.ledger.wake.Store(&f)
}

// Limit is the limit in force, in bytes, zero if there is none.
func (r *Resource) Limit() uint64 {
	return boundOf(r.ledger.limit.Load())
}

// boundOf is a limit as callers read it.
func boundOf(limit uint64) uint64 {
	if limit == math.MaxUint64 {
		return 0
	}
	return limit
}

// String is "budget(" upstream ")".
func (r *Resource) String() string { return fmt.Sprintf("budget(%v)", r.upstream) }

// What follows has nothing to do with bytes and goes through unchanged. Each
// method is written out so that one added to the contract has to be decided
// on here.

// Ordinal is the upstream's device.
func (r *Resource) Ordinal() int { return r.upstream.Ordinal() }

// Features is what the upstream can do, and core.Reservations, which the
// budget implements itself.
func (r *Resource) Features() core.Features { return r.upstream.Features() | core.Reservations }

// PrepareUse is the upstream's.
func (r *Resource) PrepareUse(ctx context.Context, u core.UseRequest) (core.Ticket, error) {
	return r.upstream.PrepareUse(ctx, u)
}

// FinishUse is the upstream's.
func (r *Resource) FinishUse(ctx context.Context, t core.Ticket) error {
	return r.upstream.FinishUse(ctx, t)
}

// AbortUse is the upstream's.
func (r *Resource) AbortUse(ctx context.Context, t core.Ticket) error {
	return r.upstream.AbortUse(ctx, t)
}

// PassesUses is for the layer above, which calls the upstream for them: see package path.
func (r *Resource) PassesUses() (core.Resource, path.Uses) { return r, path.UsesOf(r.upstream) }

// RecordUse is the upstream's.
func (r *Resource) RecordUse(ctx context.Context, id core.BlockID, stream core.StreamID) error {
	return r.upstream.RecordUse(ctx, id, stream)
}

// ReapPending is the upstream's; what it releases leaves the ledger before
// it returns.
func (r *Resource) ReapPending(ctx context.Context) error { return r.upstream.ReapPending(ctx) }

// Drain is the upstream's; it blocks until every queued free is passed, or
// ctx ends.
func (r *Resource) Drain(ctx context.Context) error { return r.upstream.Drain(ctx) }

// State is the upstream's.
func (r *Resource) State(id core.BlockID) core.BlockState { return r.upstream.State(id) }

// FreedOn is the upstream's.
func (r *Resource) FreedOn(id core.StreamID) core.FreeCounters { return r.upstream.FreedOn(id) }

// Subscribe adds a listener for the upstream's notices. The budget heard of
// each block first: its bytes have left the ledger when l is called.
func (r *Resource) Subscribe(l core.Listener) { r.records.Subscribe(r.upstream, l) }

// CheckLive forwards.
func (r *Resource) CheckLive(ctx context.Context) error { return r.upstream.CheckLive(ctx) }

// Inspect is the upstream's.
func (r *Resource) Inspect() core.Inspector { return r.upstream.Inspect() }

// Unwrap is the upstream.
func (r *Resource) Unwrap() core.Resource { return r.upstream }
