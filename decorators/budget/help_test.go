package budget

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

const mib = 1 << 20

func newBudget(t testing.TB, upstream core.Resource, cfg Config) *Resource {
	t.Helper()
	return must.Get(New(upstream, cfg))(t)
}

func mustAllocate(t testing.TB, r core.Resource, req core.Request) core.Block {
	t.Helper()
	b, err := r.Allocate(context.Background(), req)
	if err != nil {
		t.Fatalf("Allocate(%d bytes on stream %v): %v", req.Bytes, req.Stream, err)
	}
	return b
}

func mustFree(t testing.TB, r core.Resource, b core.Block) {
	t.Helper()
	if _, err := r.Deallocate(context.Background(), b.ID); err != nil {
		t.Fatalf("Deallocate(%v): %v", b.ID, err)
	}
}

func mustReserve(t testing.TB, r core.Resource, bytes uint64) core.Claim {
	t.Helper()
	c, err := r.Reserve(context.Background(), bytes, "request")
	if err != nil {
		t.Fatalf("Reserve(%d): %v", bytes, err)
	}
	return c
}

// refused asks for what must be refused and returns the explanation.
func refused(t testing.TB, r core.Resource, req core.Request) *core.OutOfBudgetError {
	t.Helper()
	_, err := r.Allocate(context.Background(), req)
	var refusal *core.OutOfBudgetError
	if !errors.As(err, &refusal) || !isRefusal(err) {
		t.Fatalf("Allocate(%d bytes on stream %v): got %v, want a refusal", req.Bytes, req.Stream, err)
	}
	return refusal
}

// isRefusal reports whether err is a refusal of the budget or of one of its claims.
func isRefusal(err error) bool {
	return errors.Is(err, core.ErrOutOfBudget) || errors.Is(err, core.ErrClaimExceeded)
}

func wantCharged(t testing.TB, r *Resource, want uint64) {
	t.Helper()
	s := r.Stats()
	if s.Charged != want || s.Underflows != 0 {
		t.Fatalf("charged %d with %d underflows, want %d with none", s.Charged, s.Underflows, want)
	}
}

// wantEmpty checks that nothing is left on any book.
func wantEmpty(t testing.TB, r *Resource) {
	t.Helper()
	wantCharged(t, r, 0)
	if h := r.Holders(); len(h) != 0 {
		t.Errorf("holders of an empty budget: %v", h)
	}
	if lent, credit := r.streams.totals(); r.ledger.used.Load() != credit || lent != 0 {
		t.Errorf("used %d with %d of credit, lent %d, want all to be credit", r.ledger.used.Load(), credit, lent)
	}
	for _, l := range r.streams.list() {
		l.mu.Lock()
		if l.grants != 0 || len(l.claims) != 0 || l.general != (streamAccount{source: &l.credit}) {
			t.Errorf("stream %v still has %d grants, %d claims, %+v", l.stream, l.grants, len(l.claims), l.general)
		}
		l.mu.Unlock()
	}
}

func lentBy(r *Resource) uint64 {
	lent, _ := r.streams.totals()
	return lent
}

// sink keeps the events it gets.
type sink struct {
	mu     sync.Mutex
	events []oplog.Event
}

func (s *sink) Emit(_ context.Context, e oplog.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}
