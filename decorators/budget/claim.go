package budget

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/cures"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

// lastClaim numbers claims in the process, so that a claim of one budget is
// never taken for one of another.
var lastClaim atomic.Uint64

// claim is an account of bytes that were taken from the general ledger. Closed,
// it gives nothing more and passes on what is given to it.
type claim struct {
	id     core.ClaimID
	tag    core.Tag
	bytes  uint64 // as reserved
	ledger *ledger

	mu      sync.Mutex
	unspent uint64
	closed  bool
}

var _ account = (*claim)(nil)

func (c *claim) take(n, lendable uint64) (uint64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, false
	}
	lent := min(n, lendable)
	if n-lent > c.unspent {
		return c.unspent + lendable, false
	}
	c.unspent -= n - lent
	return lent, true
}

func (c *claim) give(n uint64) {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.unspent += n
	}
	c.mu.Unlock()
	if closed {
		c.ledger.give(n) // which wakes a waiter, whose lock is not taken under the claim's
	}
}

func (c *claim) room(lendable uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0
	}
	return c.unspent + lendable
}

func (c *claim) close() {
	c.mu.Lock()
	c.closed = true
	left := c.unspent
	c.mu.Unlock()
	c.ledger.give(left) // which wakes a waiter, too
}

// claimTable holds the open claims. The zero table is ready to use. Each allocation that
// names one looks here, which writes nothing.
type claimTable struct{ open sync.Map } // of *claim by core.ClaimID

func (t *claimTable) find(op string, id core.ClaimID) (*claim, error) {
	if c, ok := t.open.Load(id); ok {
		return c.(*claim), nil
	}
	return nil, unknownClaim(op, id)
}

func (t *claimTable) add(c *claim) { t.open.Store(c.id, c) }

// remove returns the claim, nil if it is not open.
func (t *claimTable) remove(id core.ClaimID) *claim {
	c, _ := t.open.LoadAndDelete(id)
	removed, _ := c.(*claim)
	return removed
}

// list is the open claims.
func (t *claimTable) list() (open []*claim) {
	for _, c := range t.open.Range {
		open = append(open, c.(*claim))
	}
	return open
}

// totals is the number of open claims and the sum of their unspent bytes.
func (t *claimTable) totals() (claims, unspent uint64) {
	open := t.list()
	for _, c := range open {
		unspent += c.room(0)
	}
	return uint64(len(open)), unspent
}

// addTo adds what the claims of each tag have set aside. A claim that is drawn to its
// end is left out: its blocks are listed.
func (t *claimTable) addTo(held holdings) {
	for _, c := range t.list() {
		if unspent := c.room(0); unspent > 0 {
			held.add(c.tag, core.Claimed, sum{unspent, 1})
		}
	}
}

func unknownClaim(op string, id core.ClaimID) error {
	return &core.InvalidRequestError{Op: op, Field: "Claim",
		Reason: fmt.Sprintf("claim %d is not open: it was released before, or this budget did not make it", id)}
}

// Reserve takes bytes from the limit and sets them aside for requests that
// name the claim, whole or not at all. Like Allocate it looks for memory before it refuses, and may
// wait for the device meanwhile. What is pending cannot
// be lent to it, because a claim names no stream. Errors:
// core.InvalidRequestError for zero bytes, core.OutOfBudgetError.
func (r *Resource) Reserve(ctx context.Context, bytes uint64, tag core.Tag) (core.Claim, error) {
	if bytes == 0 {
		return core.Claim{}, &core.InvalidRequestError{Op: "Reserve", Field: "bytes", Reason: "zero bytes: reserve at least one"}
	}
	tag = tag.OrUntagged()
	req := core.Request{Bytes: bytes, Requested: bytes, Tag: tag}
	room, taken := r.path.Room(), false
	defer func() {
		if taken { // the program's code has ended the goroutine, so no claim has the bytes
			r.ledger.give(bytes)
		}
	}()
	search, err := room.Seek(ctx, cures.Want{Request: &req, Reserves: true}, func() error {
		if short := r.setAside(bytes, tag); short != nil {
			return short
		}
		taken = true
		return nil
	})
	if short := r.shortageIn(err); short != nil {
		wait := refuse.WaitOf(refuse.Waited(err, refuse.WaitIn(ctx), bytes, tag))
		err = r.refuse(ctx, &req, short, wait, search.Reaped())
	}
	if room.Tell(ctx, search, &req, err); err != nil {
		return core.Claim{}, err
	}
	taken = false
	c := &claim{id: core.ClaimID(lastClaim.Add(1)), tag: tag, bytes: bytes, ledger: &r.ledger, unspent: bytes}
	r.claims.add(c)
	return core.Claim{ID: c.id, Bytes: bytes, Tag: tag}, nil
}

// setAside takes bytes for a claim. It returns why they do not fit, or nil.
func (r *Resource) setAside(bytes uint64, tag core.Tag) (short *shortage) {
	if _, ok := r.ledger.take(bytes, 0); ok {
		return nil
	}
	r.streams.recallCredit(func() {
		if room, ok := r.ledger.take(bytes, 0); !ok {
			short = &shortage{of: r, account: &r.ledger, bytes: bytes, remaining: room, tag: tag}
		}
	})
	return short
}

// ReleaseClaim gives the unspent bytes of a claim back to the general ledger.
// Blocks drawn from it stay charged and go to the general ledger when they
// are released. It does not block. A claim that is not open, because it was
// released before or comes from elsewhere, is a core.InvalidRequestError.
func (r *Resource) ReleaseClaim(_ context.Context, id core.ClaimID) error {
	c := r.claims.remove(id)
	if c == nil {
		return unknownClaim("ReleaseClaim", id)
	}
	c.close()
	return nil
}
