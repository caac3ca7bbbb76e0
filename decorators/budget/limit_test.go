package budget

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
)

func TestOneByteMoreThanTheLimitIsRefused(t *testing.T) {
	r := newBudget(t, coretest.NewFake(0), Config{Limit: 5 * mib})
	_ = refused(t, r, core.Request{Bytes: 5*mib + 1})
	mustAllocate(t, r, core.Request{Bytes: 5 * mib})
	wantCharged(t, r, 5*mib)
}

func TestOfNestedBudgetsTheTighterOneRefuses(t *testing.T) {
	for _, limits := range [][2]uint64{{2 * mib, 5 * mib}, {5 * mib, 2 * mib}} {
		inner := newBudget(t, coretest.NewFake(0), Config{Limit: limits[0]})
		outer := newBudget(t, inner, Config{Limit: limits[1]})
		_ = refused(t, outer, core.Request{Bytes: 4 * mib})
		wantCharged(t, inner, 0)
		wantCharged(t, outer, 0)
		if got := outer.Stats().Refusals; got != 1 {
			t.Errorf("limits %v: %d refusals counted, want 1", limits, got)
		}
	}
}

func TestFreedBytesCanBeFilledExactly(t *testing.T) {
	fake := coretest.NewFake(0)
	fake.ReleaseAtFree()
	r := newBudget(t, fake, Config{Limit: 10 * mib})
	first := mustAllocate(t, r, core.Request{Bytes: 4 * mib})
	mustAllocate(t, r, core.Request{Bytes: 4 * mib})
	mustFree(t, r, first)
	mustAllocate(t, r, core.Request{Bytes: 6 * mib})
	wantCharged(t, r, 10*mib)
	if e := refused(t, r, core.Request{Bytes: 1}); e.Remaining != 0 {
		t.Errorf("remaining %d, want 0", e.Remaining)
	}
}

func TestARefusalChargesNothing(t *testing.T) {
	r := newBudget(t, coretest.NewFake(0), Config{Limit: 10 * mib})
	mustAllocate(t, r, core.Request{Bytes: 4 * mib})
	mustAllocate(t, r, core.Request{Bytes: 4 * mib})
	if e := refused(t, r, core.Request{Bytes: 3 * mib}); e.Remaining != 2*mib || e.Requested != 3*mib {
		t.Errorf("requested %d, remaining %d", e.Requested, e.Remaining)
	}
	wantCharged(t, r, 8*mib)
}

func TestStatisticsOverTheStack(t *testing.T) {
	fake := coretest.NewFake(0)
	fake.ReleaseAtFree()
	inner := newBudget(t, fake, Config{Limit: 1 << 30})
	var blocks []core.Block
	fill := func(r core.Resource, n int) {
		for range n {
			blocks = append(blocks, mustAllocate(t, r, core.Request{Bytes: 10 * mib, Tag: "column"}))
		}
	}
	fill(inner, 10)
	for i := 0; i < 10; i += 2 {
		mustFree(t, inner, blocks[i])
	}
	blocks = []core.Block{blocks[1], blocks[3], blocks[5], blocks[7], blocks[9]}
	wantHeld(t, inner, 50*mib, 5, 100*mib)
	fill(inner, 10)
	wantHeld(t, inner, 150*mib, 15, 150*mib)
	if s := inner.Stats(); s.Allocations != 20 {
		t.Errorf("%d allocations, want 20", s.Allocations)
	}

	outer := newBudget(t, inner, Config{Limit: 1 << 30})
	fill(outer, 5)
	wantCharged(t, outer, 50*mib)
	wantHeld(t, inner, 200*mib, 20, 200*mib)
	for _, b := range blocks {
		mustFree(t, inner, b) // also those that the outer budget charged
	}
	wantEmpty(t, outer)
	wantEmpty(t, inner)
}

func wantHeld(t *testing.T, r *Resource, bytes, blocks, peak uint64) {
	t.Helper()
	wantCharged(t, r, bytes)
	h := r.Holders()
	if len(h) != 1 || h[0] != (core.Holder{Tag: "column", State: core.Live, Bytes: bytes, Blocks: blocks}) {
		t.Errorf("holders %v, want %d bytes in %d blocks", h, bytes, blocks)
	}
	if s := r.Stats(); s.Live.Bytes != bytes || s.Live.Blocks != blocks || s.PeakBytes != peak {
		t.Errorf("live %d in %d blocks, peak %d; want %d, %d, %d", s.Live.Bytes, s.Live.Blocks, s.PeakBytes, bytes, blocks, peak)
	}
}

func TestSizesThatWouldOverflowAreRefused(t *testing.T) {
	for _, limit := range []uint64{1, 10 * mib, math.MaxUint64 - 1, 0} {
		fake := coretest.NewFake(0)
		r := newBudget(t, fake, Config{Limit: limit})
		mustAllocate(t, r, core.Request{Bytes: 1})
		_ = refused(t, r, core.Request{Bytes: math.MaxUint64})
		if _, err := r.Reserve(context.Background(), math.MaxUint64, ""); !errors.Is(err, core.ErrOutOfBudget) {
			t.Errorf("limit %d: Reserve of everything: %v", limit, err)
		}
		wantCharged(t, r, 1)
	}
}

func TestALoweredLimitRefusesUntilItFits(t *testing.T) {
	fake := coretest.NewFake(0)
	fake.ReleaseAtFree()
	r := newBudget(t, fake, Config{Limit: 100})
	a := mustAllocate(t, r, core.Request{Bytes: 60})
	b := mustAllocate(t, r, core.Request{Bytes: 40})
	r.SetLimit(50)
	if e := refused(t, r, core.Request{Bytes: 1}); e.Limit != 50 || e.Remaining != 0 || e.Live != 100 {
		t.Errorf("explained as %+v", e)
	}
	mustFree(t, r, a)
	_ = refused(t, r, core.Request{Bytes: 11})
	mustAllocate(t, r, core.Request{Bytes: 10})
	r.SetLimit(0)
	mustAllocate(t, r, core.Request{Bytes: mib})
	mustFree(t, r, b)
	wantCharged(t, r, 10+mib)
	if r.Limit() != 0 {
		t.Errorf("limit %d, want none", r.Limit())
	}
}

func TestABudgetNamesItsUpstream(t *testing.T) {
	fake := coretest.NewFake(0)
	r, err := core.Chain(fake, core.With(New, Config{Limit: 1}))
	if err != nil || r.String() != "budget(fake:0)" || r.Unwrap() != core.Resource(fake) {
		t.Errorf("got %v, %v", r, err)
	}
	if r, err := core.Chain(fake, core.With(New, Config{}), func(core.Resource) (core.Resource, error) { return New(nil, Config{Limit: 1}) }); r != nil || !errors.Is(err, core.ErrInvalidRequest) {
		t.Errorf("nil upstream: %v, %v", r, err)
	}
}

func TestEverythingElseGoesThrough(t *testing.T) {
	fake := coretest.NewFake(3)
	r := newBudget(t, fake, Config{Limit: mib})
	ctx := context.Background()
	b := mustAllocate(t, r, core.Request{Bytes: 64, Stream: 2})
	use := core.UseRequest{Stream: 2, Launch: "k", Uses: []core.Use{{Block: b.ID, Access: core.Write}}}
	for _, end := range []func(context.Context, core.Ticket) error{r.FinishUse, r.AbortUse} {
		ticket, err := r.PrepareUse(ctx, use)
		if err != nil || end(ctx, ticket) != nil {
			t.Fatalf("a use did not go through: %v", err)
		}
	}
	expect.Success(t, r.RecordUse(ctx, b.ID, 2))
	if r.State(b.ID) != core.Live || r.Ordinal() != 3 {
		t.Errorf("state %v on device %d", r.State(b.ID), r.Ordinal())
	}
	if want := fake.Features() | core.Reservations; r.Features() != want {
		t.Errorf("features %v, want %v", r.Features(), want)
	}
	mustFree(t, r, b)
	if r.FreedOn(2).Queued != 64 {
		t.Errorf("free counters %+v", r.FreedOn(2))
	}
	expect.Success(t, errors.Join(r.ReapPending(ctx), r.Drain(ctx)))
	wantEmpty(t, r)
}

func TestNoLimitIsAboveWhatOthersAllow(t *testing.T) {
	r := newBudget(t, coretest.NewFake(0), Config{})
	mustAllocate(t, r, core.Request{Bytes: 40})
	for _, c := range []struct {
		own, available, others, limit uint64
		by                            string
	}{
		{limit: 0},
		{available: 100, limit: 100},
		{available: 100, others: 70, limit: 70, by: "others"},
		{available: 100, others: 100, limit: 100}, // the budget's own
		{own: 50, available: 100, others: 70, limit: 50},
		{own: 120, available: 100, limit: 120}, // what is set is not bounded by what is there
		{own: 120, available: 100, others: 1, limit: 1, by: "others"},
	} {
		r.SetLimit(c.own)
		r.SetBounds(c.available, c.others, "others")
		if r.Limit() != c.limit || r.Stats().Limit != c.limit {
			t.Errorf("%+v: the limit is %d", c, r.Limit())
		}
		if c.limit == 0 {
			continue
		}
		if e := refused(t, r, core.Request{Bytes: c.limit}); e.Limit != c.limit || e.LimitedBy != c.by || strings.Contains(e.Error(), "that of others") != (c.by != "") {
			t.Errorf("%+v: explained as %v", c, e)
		}
	}
}

// Whatever is set last counts, and the limit is never above what others allow.
func TestBoundsAndLimitsFromManySides(t *testing.T) {
	r := newBudget(t, coretest.NewFake(0), Config{Limit: 1000})
	r.SetBounds(2000, 500, "others")
	var all sync.WaitGroup
	for i := range uint64(4) {
		all.Go(func() {
			for n := range uint64(500) {
				r.SetLimit(400 + n%300)
				r.SetBounds(2000, 500-i-n%7, "others")
				if limit := r.Limit(); limit < 400 || limit > 500 {
					t.Errorf("the limit is %d", limit)
				}
				if b, err := r.Allocate(t.Context(), core.Request{Bytes: 600}); err == nil {
					t.Errorf("%d bytes were granted", b.Bytes)
				}
			}
		})
	}
	all.Wait()
	r.SetLimit(450)
	r.SetBounds(2000, 460, "others")
	if r.Limit() != 450 {
		t.Errorf("the limit is %d", r.Limit())
	}
}
