package budget

import (
	"context"
	"math"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

func TestChurnOnOneStreamIsNeverRefused(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 100})
	b := mustAllocate(t, r, core.Request{Bytes: 90, Stream: 1})
	for range 1000 { // the device passes none of the frees meanwhile
		mustFree(t, r, b)
		b = mustAllocate(t, r, core.Request{Bytes: 90, Stream: 1})
	}
	if used := r.ledger.used.Load(); used > 100 {
		t.Errorf("used %d, more than the limit", used)
	}
	wantCharged(t, r, 1001*90)
	if d.reaps != 0 {
		t.Errorf("%d reaps, want none: the bytes are there in order", d.reaps)
	}
	d.pass(1, 1000)
	wantCharged(t, r, 90)
	mustFree(t, r, b)
	d.pass(1, 1)
	wantEmpty(t, r)
}

func TestAnotherStreamIsRefusedUntilTheFreeIsPassed(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 100})
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 90, Stream: 1}))
	if e := refused(t, r, core.Request{Bytes: 90, Stream: 2}); e.Remaining != 10 || e.Pending != 90 {
		t.Errorf("explained as %+v", e)
	}
	d.pass(1, 1)
	mustAllocate(t, r, core.Request{Bytes: 90, Stream: 2})
}

func TestBytesAreLentOnce(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 100})
	first := mustAllocate(t, r, core.Request{Bytes: 60, Stream: 1})
	second := mustAllocate(t, r, core.Request{Bytes: 40, Stream: 1})
	mustFree(t, r, first)
	mustFree(t, r, second)
	mustAllocate(t, r, core.Request{Bytes: 70, Stream: 1})
	if e := refused(t, r, core.Request{Bytes: 31, Stream: 1}); e.Remaining != 30 {
		t.Errorf("remaining %d, want 30", e.Remaining)
	}
	d.pass(1, 1) // 60 of the 70 that are lent: none of the 40 has become free
	_ = refused(t, r, core.Request{Bytes: 31, Stream: 1})
	_ = refused(t, r, core.Request{Bytes: 1, Stream: 2})
	d.pass(1, 1)
	_ = refused(t, r, core.Request{Bytes: 31, Stream: 2})
	mustAllocate(t, r, core.Request{Bytes: 30, Stream: 2})
	wantCharged(t, r, 100)
}

// Stream 2 has bytes of its own coming, but at its turn there was room, too.
// What it took of the room it gives up when stream 1 needs it.
func TestAStreamThatFoundRoomLeavesNoneShort(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 100})
	one := mustAllocate(t, r, core.Request{Bytes: 50, Stream: 1})
	two := mustAllocate(t, r, core.Request{Bytes: 50, Stream: 2})
	mustFree(t, r, one)
	mustFree(t, r, two)
	d.pass(1, 1)
	mustAllocate(t, r, core.Request{Bytes: 50, Stream: 2})
	mustAllocate(t, r, core.Request{Bytes: 50, Stream: 1})
	wantCharged(t, r, 150)
	_ = refused(t, r, core.Request{Bytes: 1, Stream: 1})
	_ = refused(t, r, core.Request{Bytes: 1, Stream: 2})
	d.pass(2, 1)
	wantCharged(t, r, 100)
}

func TestAFreeQueuedAfterAnAllocationDoesNotStandInForIt(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 100})
	early := mustAllocate(t, r, core.Request{Bytes: 50, Stream: 1})
	mustAllocate(t, r, core.Request{Bytes: 50, Stream: 1})
	mustFree(t, r, early)
	_ = refused(t, r, core.Request{Bytes: 1, Stream: 2})
	mustAllocate(t, r, core.Request{Bytes: 50, Stream: 1})
	_ = refused(t, r, core.Request{Bytes: 1, Stream: 1})
}

func TestAFreeHeldBackByAnIntentIsNotLent(t *testing.T) {
	d := newDevice()
	d.hold = true
	r := newBudget(t, d, Config{Limit: 100})
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 60, Stream: 1}))
	d.hold = false
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 30, Stream: 1}))
	if e := refused(t, r, core.Request{Bytes: 41, Stream: 1}); e.Remaining != 40 || e.Lent != 30 {
		t.Errorf("remaining %d, lent %d, want 40 and 30: what is free and the free that is queued", e.Remaining, e.Lent)
	}
	mustAllocate(t, r, core.Request{Bytes: 40, Stream: 1})
	d.letGo(1)
	mustAllocate(t, r, core.Request{Bytes: 60, Stream: 1})
	_ = refused(t, r, core.Request{Bytes: 1, Stream: 1})
}

// Another free, of which the stream's counter tells before it is released, must not make
// the one that is held back look queued.
func TestNothingIsLentWhereAQueuedFreeIsReleased(t *testing.T) {
	d := newDevice()
	d.ordered, d.hold = true, true
	r := newBudget(t, d, Config{Limit: 100})
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 60, Stream: 1}))
	d.freeCounters[1] = core.FreeCounters{Queued: 30}
	if e := refused(t, r, core.Request{Bytes: 41, Stream: 1}); e.Remaining != 40 || e.Pending != 60 {
		t.Errorf("explained as %+v", e)
	}
	mustAllocate(t, r, core.Request{Bytes: 40, Stream: 1})
}

func TestAStreamLedgerKnowsWhatWasFreedBefore(t *testing.T) {
	d := newDevice()
	d.freeCounters[1] = core.FreeCounters{Queued: 1 << 40} // an earlier lease of the same stream
	d.hold = true
	r := newBudget(t, d, Config{Limit: 100})
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 60, Stream: 1}))
	_ = refused(t, r, core.Request{Bytes: 41, Stream: 1})
}

func TestAFreePassedAtOnceHidesNoneThatIsHeldBack(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 100})
	kept := mustAllocate(t, r, core.Request{Bytes: 60, Stream: 1})
	d.atOnce = true
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 30, Stream: 1}))
	wantCharged(t, r, 60)
	d.atOnce, d.hold = false, true
	mustFree(t, r, kept)
	_ = refused(t, r, core.Request{Bytes: 41, Stream: 1})
	mustAllocate(t, r, core.Request{Bytes: 40, Stream: 1})
}

func TestSizesOverflowNoLoweredLimit(t *testing.T) {
	r := newBudget(t, newDevice(), Config{Limit: 100})
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 60, Stream: 1}))
	r.SetLimit(10)
	_ = refused(t, r, core.Request{Bytes: math.MaxUint64 - 49, Stream: 1})
	_ = refused(t, r, core.Request{Bytes: 11, Stream: 1})
	mustAllocate(t, r, core.Request{Bytes: 10, Stream: 1})
}

func TestInOrderBytesAreEnoughUnderALoweredLimit(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 120})
	mustAllocate(t, r, core.Request{Bytes: 70, Stream: 2})
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 50, Stream: 1}))
	r.SetLimit(100)
	for range 3 { // 120, of which 50 are going: 30 more fit by then
		mustAllocate(t, r, core.Request{Bytes: 10, Stream: 1})
	}
	if e := refused(t, r, core.Request{Bytes: 10, Stream: 1}); e.Remaining != 0 {
		t.Errorf("remaining %d, want 0", e.Remaining)
	}
	_ = refused(t, r, core.Request{Bytes: 1, Stream: 2})
	d.pass(1, 1)
	wantCharged(t, r, 100)
}

func TestAFailedBorrowerGivesItsLoanBack(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 100})
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 90, Stream: 1}))
	d.failNext("Allocate", errInjected)
	if _, err := r.Allocate(context.Background(), core.Request{Bytes: 95, Stream: 1}); err != errInjected {
		t.Fatalf("got %v", err)
	}
	wantCharged(t, r, 90)
	if lent := lentBy(r); lent != 0 {
		t.Errorf("%d bytes still lent", lent)
	}
	mustAllocate(t, r, core.Request{Bytes: 100, Stream: 1})
}

func TestALoanRepaidBeforeItsBorrowerFailed(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 100})
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 90, Stream: 1}))
	var g grant
	if err := r.obtain(&core.Request{Bytes: 95, Stream: 1}, nil, &g); err != nil {
		t.Fatal(err)
	}
	d.pass(1, 1)
	wantCharged(t, r, 95)
	g.undo()
	wantEmpty(t, r)
}

func TestStreamLedgersOfOldLeasesAreDropped(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 1 << 30})
	kept := mustAllocate(t, r, core.Request{Bytes: 8, Stream: 7})
	for lease := core.StreamID(100); lease < 10_000; lease++ {
		mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 8, Stream: lease}))
		d.pass(lease, 1)
	}
	if n := len(r.streams.byID); n > minSweepAt {
		t.Errorf("%d stream ledgers kept for one block", n)
	}
	mustFree(t, r, kept)
	d.pass(7, 1)
	wantEmpty(t, r)
}

func TestAStreamLedgerDroppedUnderAFinderIsMadeAnew(t *testing.T) {
	r := newBudget(t, newDevice(), Config{Limit: 100})
	old := r.streams.enter(5)
	old.mu.Unlock()
	r.streams.mu.Lock()
	r.streams.sweep()
	r.streams.mu.Unlock()
	r.streams.slot(5).Store(old) // as if a finder had read it before the sweep
	l := r.streams.enter(5)
	defer l.mu.Unlock()
	if l == old || l.dropped {
		t.Fatal("a dropped stream ledger was entered")
	}
}

func TestAStreamLedgerWithAGrantUnderWayIsKept(t *testing.T) {
	r := newBudget(t, newDevice(), Config{Limit: 100})
	var g grant
	if err := r.obtain(&core.Request{Bytes: 10, Stream: 5}, nil, &g); err != nil {
		t.Fatal(err)
	}
	r.streams.mu.Lock()
	r.streams.sweep()
	r.streams.mu.Unlock()
	if g.ledger.dropped {
		t.Error("the stream ledger was dropped")
	}
	g.undo()
	wantEmpty(t, r)
}

func TestTagsThatHoldNothingAreForgotten(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 1 << 30})
	kept := mustAllocate(t, r, core.Request{Bytes: 8, Tag: "kept"})
	for i := range 1000 {
		mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 8, Tag: core.Tag(rune('a' + i))}))
		d.pass(0, 1)
	}
	l := r.streams.enter(0)
	n := len(l.tallies)
	l.mu.Unlock()
	if n > maxIdleTallies {
		t.Errorf("%d tags remembered", n)
	}
	if h := r.Holders(); len(h) != 1 || h[0].Tag != "kept" {
		t.Errorf("holders %v", h)
	}
	mustFree(t, r, kept)
}

// Its memory is the host's to take, now: it cannot wait for a free in the order
// of a stream.
func TestAnIsolatedBlockIsLentNothing(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 100})
	c := mustReserve(t, r, 20)
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 70, Stream: 1}))
	if e := refused(t, r, core.Request{Bytes: 11, Stream: 1, Isolated: true}); e.Remaining != 10 {
		t.Errorf("remaining %d, want 10", e.Remaining)
	}
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 20, Stream: 1, Claim: c.ID}))
	_ = refused(t, r, core.Request{Bytes: 20, Stream: 1, Claim: c.ID, Isolated: true})
	mustAllocate(t, r, core.Request{Bytes: 10, Stream: 1, Isolated: true})
	mustAllocate(t, r, core.Request{Bytes: 70, Stream: 1})
}
