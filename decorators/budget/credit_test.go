package budget

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// withCredit is a budget in which stream 1 has so many bytes of credit.
func withCredit(t testing.TB, limit, credit uint64) *Resource {
	t.Helper()
	r := newBudget(t, &leaf{}, Config{Limit: limit})
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: credit, Stream: 1}))
	wantCredit(t, r, credit)
	return r
}

func wantCredit(t testing.TB, r *Resource, want uint64) {
	t.Helper()
	if _, credit := r.streams.totals(); credit != want {
		t.Fatalf("%d bytes of credit, want %d", credit, want)
	}
}

func TestAPairWithinItsCreditWritesNothingThatStreamsShare(t *testing.T) {
	r := withCredit(t, 1000, 55)
	for _, bytes := range []uint64{55, 20, 40} {
		b := mustAllocate(t, r, core.Request{Bytes: bytes, Stream: 1})
		wantCredit(t, r, 55-bytes)
		wantCharged(t, r, bytes)
		mustFree(t, r, b)
		if used := r.ledger.used.Load(); used != 55 {
			t.Fatalf("used %d, want 55 as before", used)
		}
	}
	b := mustAllocate(t, r, core.Request{Bytes: 56, Stream: 1}) // all of the credit, and a byte
	if used := r.ledger.used.Load(); used != 56 {
		t.Errorf("used %d, want 56", used)
	}
	wantCredit(t, r, 0)
	mustFree(t, r, b)
	wantCredit(t, r, 56)
	wantEmpty(t, r)
}

func TestAStreamKeepsLessCreditTheNearerTheLimitIs(t *testing.T) {
	r := newBudget(t, &leaf{}, Config{Limit: 1000})
	for _, c := range []struct{ live, freed, want uint64 }{{0, 63, 0}, {0, 58, 58}, {400, 35, 35}, {400, 36, 0}, {984, 1, 0}} {
		live := core.Block{}
		if c.live > 0 {
			live = mustAllocate(t, r, core.Request{Bytes: c.live, Stream: 2})
		}
		mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: c.freed, Stream: 1}))
		wantCredit(t, r, c.want)
		if c.live > 0 {
			mustFree(t, r, live)
		}
		r.streams.recall()
		wantEmpty(t, r)
	}
}

func TestCreditOfOthersIsRecalledBeforeARefusal(t *testing.T) {
	for name, ask := range map[string]func(*Resource) error{
		"allocation": func(r *Resource) error {
			_, err := r.Allocate(t.Context(), core.Request{Bytes: 1000, Stream: 2})
			return err
		},
		"allocation on its stream": func(r *Resource) error {
			_, err := r.Allocate(t.Context(), core.Request{Bytes: 1000, Stream: 1})
			return err
		},
		"reservation": func(r *Resource) error {
			_, err := r.Reserve(t.Context(), 1000, "request")
			return err
		},
		"padding": func(r *Resource) error {
			c := mustReserve(t, r, 900)
			_, err := r.Allocate(t.Context(), core.Request{Requested: 900, Bytes: 1000, Stream: 2, Claim: c.ID})
			return err
		},
	} {
		r := withCredit(t, 1000, 50)
		if _, fits := r.ledger.take(1000, 0); fits {
			t.Errorf("%s: it fits with the credit left where it is: nothing is tried", name)
		}
		if err := ask(r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantCredit(t, r, 0)
		wantCharged(t, r, 1000)
	}
}

func TestARefusalCountsCreditAsRoom(t *testing.T) {
	r := withCredit(t, 1000, 50)
	if e := refused(t, r, core.Request{Bytes: 1001, Stream: 2}); e.Remaining != 1000 || e.Live != 0 {
		t.Errorf("explained as %+v", e)
	}
	r = withCredit(t, 1000, 50)
	_, err := r.Reserve(t.Context(), 1001, "request")
	if e, ok := errors.AsType[*core.OutOfBudgetError](err); !ok || e.Remaining != 1000 {
		t.Errorf("explained as %v", err)
	}
}

func TestALowerLimitHoldsForCreditToo(t *testing.T) {
	r := withCredit(t, 1000, 50)
	mustAllocate(t, r, core.Request{Bytes: 100, Stream: 2})
	r.SetLimit(100)
	_ = refused(t, r, core.Request{Bytes: 1, Stream: 1})
	r.SetLimit(110)
	mustAllocate(t, r, core.Request{Bytes: 10, Stream: 1})
	_ = refused(t, r, core.Request{Bytes: 1, Stream: 1})
}

func TestNoCreditIsKeptDuringARecall(t *testing.T) {
	r := withCredit(t, 1000, 50)
	early := mustAllocate(t, r, core.Request{Bytes: 20, Stream: 1})
	r.streams.recallCredit(func() {
		mustFree(t, r, early)
		mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 5, Stream: 3})) // its stream ledger is new
		wantCredit(t, r, 0)
		wantEmpty(t, r)
	})
	mustFree(t, r, mustAllocate(t, r, core.Request{Bytes: 5, Stream: 3}))
	wantCredit(t, r, 5)
}

func TestAForgottenStreamGivesItsCreditBack(t *testing.T) {
	r := withCredit(t, 1000, 50)
	r.streams.mu.Lock()
	r.streams.sweep()
	r.streams.mu.Unlock()
	if used := r.ledger.used.Load(); used != 0 {
		t.Errorf("used %d, want none", used)
	}
	wantEmpty(t, r)
}

func TestAnUnderflowHiddenByCreditIsCountedByTheRecall(t *testing.T) {
	r := withCredit(t, 1000, 50)
	r.ledger.give(10) // bytes that nobody took
	r.streams.recall()
	if s := r.Stats(); s.Underflows != 1 || s.Charged != 0 {
		t.Errorf("%d underflows, charged %d; want 1 and none", s.Underflows, s.Charged)
	}
}

// All that is live at any time fits, to the byte: small blocks of four goroutines, which
// go from stream to stream and leave credit behind, and large ones of two, which need
// that credit back. No order may refuse one of them.
func TestWhatJustFitsIsNeverRefusedForCredit(t *testing.T) {
	const small, large, rounds = 10, 480, 10_000
	r := newBudget(t, &leaf{}, Config{Limit: 4*small + 2*large})
	var group sync.WaitGroup
	for _, bytes := range []uint64{small, small, small, small, large, large} {
		group.Go(func() {
			for round := range core.StreamID(rounds) {
				b, err := r.Allocate(context.Background(), core.Request{Bytes: bytes, Stream: round % 16})
				if err != nil {
					t.Errorf("%d bytes, which fit: %v", bytes, err)
					return
				}
				runtime.Gosched()
				if _, err := r.Deallocate(context.Background(), b.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	wantEmpty(t, r)
}
