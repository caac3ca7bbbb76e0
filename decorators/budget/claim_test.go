package budget

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestAClaimIsGrantedWholeOrRefused(t *testing.T) {
	r := newBudget(t, newDevice(), Config{Limit: 100})
	mustAllocate(t, r, core.Request{Bytes: 30})
	_, err := r.Reserve(context.Background(), 71, "request")
	var refusal *core.OutOfBudgetError
	if !errors.As(err, &refusal) || refusal.Requested != 71 || refusal.Remaining != 70 || refusal.Tag != "request" {
		t.Fatalf("got %v", err)
	}
	c := mustReserve(t, r, 70)
	if c.Bytes != 70 || c.Tag != "request" || c.ID == 0 {
		t.Errorf("claim %+v", c)
	}
	if s := r.Stats(); s.Claims != 1 || s.Claimed != 70 || s.Charged != 100 {
		t.Errorf("stats %+v", s)
	}
	if e := refused(t, r, core.Request{Bytes: 1}); e.Claimed != 70 || e.Live != 30 {
		t.Errorf("explained as %+v", e)
	}
	expect.ErrorOf(r.Reserve(context.Background(), 0, ""))(t, core.ErrInvalidRequest, "zero bytes")
}

func TestDrawnBytesReturnToAnOpenClaim(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 100})
	c := mustReserve(t, r, 60)
	b := mustAllocate(t, r, core.Request{Bytes: 50, Claim: c.ID, Stream: 1})
	wantCharged(t, r, 60)
	e := refused(t, r, core.Request{Bytes: 11, Claim: c.ID, Stream: 1})
	if e.Claim != c.ID || e.Remaining != 10 || e.Requested != 11 {
		t.Errorf("explained as %+v", e)
	}
	mustFree(t, r, b)
	_ = refused(t, r, core.Request{Bytes: 60, Claim: c.ID, Stream: 2})
	d.pass(1, 1)
	mustAllocate(t, r, core.Request{Bytes: 60, Claim: c.ID, Stream: 2})
	wantCharged(t, r, 60)
}

// Who else holds memory is no reason, and more of it would not help.
func TestAClaimThatIsExceededSaysSo(t *testing.T) {
	r := newBudget(t, newDevice(), Config{Limit: 100})
	mustAllocate(t, r, core.Request{Bytes: 30, Stream: 1, Tag: "other"})
	c := mustReserve(t, r, 12)
	mustAllocate(t, r, core.Request{Bytes: 8, Claim: c.ID, Stream: 1, Tag: "job"})
	_, err := r.Allocate(t.Context(), core.Request{Bytes: 40, Claim: c.ID, Stream: 1, Tag: "job"})
	if !errors.Is(err, core.ErrClaimExceeded) || errors.Is(err, core.ErrOutOfBudget) {
		t.Errorf("got %v", err)
	}
	e := refused(t, r, core.Request{Bytes: 40, Claim: c.ID, Stream: 1, Tag: "job"})
	if e.Claim != c.ID || e.Reserved != 12 || e.Requested != 40 || e.Remaining != 4 || len(e.Holders) != 0 {
		t.Errorf("explained as %+v", e)
	}
	if e := refused(t, r, core.Request{Bytes: 90, Stream: 1}); !errors.Is(e, core.ErrOutOfBudget) || e.Claim != 0 || len(e.Holders) == 0 {
		t.Errorf("beside the claim it is explained as %+v", e)
	}
}

func TestAClaimLendsItsOwnPendingBytesInOrder(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 100})
	c := mustReserve(t, r, 60)
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 40, Stream: 1})) // not the claim's
	b := mustAllocate(t, r, core.Request{Bytes: 50, Claim: c.ID, Stream: 1})
	for range 100 {
		mustFree(t, r, b)
		b = mustAllocate(t, r, core.Request{Bytes: 50, Claim: c.ID, Stream: 1})
	}
	_ = refused(t, r, core.Request{Bytes: 11, Claim: c.ID, Stream: 1})
	d.pass(1, 101)
	wantCharged(t, r, 60)
	mustFree(t, r, b)
	d.pass(1, 1)
	if s := r.Stats(); s.Claimed != 60 || s.Charged != 60 {
		t.Errorf("claimed %d of %d charged, want the whole claim", s.Claimed, s.Charged)
	}
	must.Do(t, r.ReleaseClaim(context.Background(), c.ID))
	wantEmpty(t, r)
}

func TestBlocksOutliveTheirClaim(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 100})
	ctx := context.Background()
	c := mustReserve(t, r, 60)
	b := mustAllocate(t, r, core.Request{Bytes: 50, Claim: c.ID, Stream: 1})
	must.Do(t, r.ReleaseClaim(ctx, c.ID))
	wantCharged(t, r, 50)
	for _, err := range []error{
		r.ReleaseClaim(ctx, c.ID),
		r.ReleaseClaim(ctx, 0),
		func() error { _, err := r.Allocate(ctx, core.Request{Bytes: 1, Claim: c.ID}); return err }(),
	} {
		expect.Error(t, err, core.ErrInvalidRequest, "a claim that is not open")
	}
	mustFree(t, r, b)
	d.pass(1, 1)
	wantEmpty(t, r)
}

func TestAClosedClaimGivesNothing(t *testing.T) {
	r := newBudget(t, newDevice(), Config{Limit: 100})
	id := mustReserve(t, r, 60).ID
	c, err := r.claims.find("test", id) // as an allocation does just before the claim is closed
	must.Do(t, err)
	must.Do(t, r.ReleaseClaim(context.Background(), id))
	if _, ok := c.take(1, 100); ok || c.room(100) != 0 {
		t.Error("a closed claim gave bytes")
	}
	wantEmpty(t, r)
}

func TestPaddingIsChargedToTheGeneralLedger(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 100})
	c := mustReserve(t, r, 60)
	padded := core.Request{Bytes: 92, Requested: 60, Claim: c.ID, Stream: 1}
	b := mustAllocate(t, r, padded)
	if s := r.Stats(); s.Claimed != 0 || s.Charged != 92 {
		t.Errorf("claimed %d, charged %d", s.Claimed, s.Charged)
	}
	mustFree(t, r, b)
	again := mustAllocate(t, r, padded) // claim and padding both in order
	d.pass(1, 1)
	wantCharged(t, r, 92)
	mustFree(t, r, again)
	d.pass(1, 1)
	if s := r.Stats(); s.Claimed != 60 || s.Charged != 60 {
		t.Errorf("claimed %d, charged %d", s.Claimed, s.Charged)
	}
	e := refused(t, r, core.Request{Bytes: 51, Requested: 10, Claim: c.ID, Stream: 1})
	if e.Claim != 0 || e.Requested != 41 || e.Remaining != 40 {
		t.Errorf("it is the padding that does not fit: %+v", e)
	}
	if s := r.Stats(); s.Claimed != 60 {
		t.Errorf("claimed %d after a refusal, want 60", s.Claimed)
	}
}

// A request that is tried again draws from its claim still, on a stream that is known, too.
func TestAClaimIsDrawnFromWhenTheDeviceIsAskedAgain(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 100})
	c := mustReserve(t, r, 60)
	for range 2 {
		d.failNext("Allocate", errMemory)
		mustAllocate(t, r, core.Request{Bytes: 20, Claim: c.ID, Stream: 1})
		wantCharged(t, r, 60)
	}
	if s := r.Stats(); s.Claimed != 20 {
		t.Errorf("claimed %d, want 20", s.Claimed)
	}
}

func TestTheClaimIsNotTheUpstreamsBusiness(t *testing.T) {
	inner := newBudget(t, newDevice(), Config{Limit: 100})
	outer := newBudget(t, inner, Config{Limit: 50})
	c := mustReserve(t, outer, 40)
	for range 8 { // the first are not served at once
		mustAllocate(t, outer, core.Request{Bytes: 5, Claim: c.ID, Stream: 1})
	}
	wantCharged(t, inner, 40)
	wantCharged(t, outer, 40)
}
