package budget

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

var (
	errInjected = errors.New("injected")
	errMemory   = &core.DriverError{Op: "alloc", Name: "OUT_OF_MEMORY", Code: 2, OutOfMemory: true}
	errLost     = &core.DriverError{Op: "query", Name: "ILLEGAL_ADDRESS", Code: 700, Sticky: true}
)

func TestAFailedAllocationChargesNothing(t *testing.T) {
	fake := coretest.NewFake(0)
	r := newBudget(t, fake, Config{Limit: 100})
	c := mustReserve(t, r, 40)
	for _, req := range []core.Request{
		{Bytes: 60}, {Bytes: 40, Claim: c.ID}, {Bytes: 60, Requested: 40, Claim: c.ID},
	} {
		fake.FailNext("Allocate", errInjected)
		if _, err := r.Allocate(context.Background(), req); err != errInjected {
			t.Errorf("%+v: got %v", req, err)
		}
		if s := r.Stats(); s.Charged != 40 || s.Claimed != 40 {
			t.Errorf("%+v: charged %d, claimed %d", req, s.Charged, s.Claimed)
		}
	}
}

func TestAFailedFreeChangesNothing(t *testing.T) {
	fake := coretest.NewFake(0)
	r := newBudget(t, fake, Config{Limit: 100})
	b := mustAllocate(t, r, core.Request{Bytes: 60, Tag: "column"})
	fake.FailNext("Deallocate", errInjected)
	if _, err := r.Deallocate(context.Background(), b.ID); err != errInjected {
		t.Fatalf("got %v", err)
	}
	wantHolder(t, r, core.Live)
	mustFree(t, r, b)
	wantHolder(t, r, core.Retired)
	expect.ErrorOf(r.Deallocate(context.Background(), b.ID))(t, core.ErrUseAfterFree, "second free")
	wantHolder(t, r, core.Retired)
	fake.Pass()
	wantEmpty(t, r)
}

func wantHolder(t *testing.T, r *Resource, state core.BlockState) {
	t.Helper()
	wantCharged(t, r, 60)
	if h := r.Holders(); len(h) != 1 || h[0] != (core.Holder{Tag: "column", State: state, Bytes: 60, Blocks: 1}) {
		t.Errorf("holders %v, want 60 bytes %v", h, state)
	}
}

func TestADeviceOutOfMemoryIsReapedAndAskedOnceMore(t *testing.T) {
	fake, events := coretest.NewFake(0), &sink{}
	r := newBudget(t, fake, Config{Limit: 100, Events: events})
	fake.FailNext("Allocate", errMemory)
	mustAllocate(t, r, core.Request{Bytes: 60})
	wantCalls(t, fake, "Allocate 60 untagged", "ReapPending ", "Allocate 60 untagged")

	fake.FailNext("Allocate", errMemory, errMemory)
	if _, err := r.Allocate(context.Background(), core.Request{Bytes: 40}); err != error(errMemory) {
		t.Errorf("got %v, want the upstream's own error", err)
	}
	wantCalls(t, fake, "Allocate 40 untagged", "ReapPending ", "Allocate 40 untagged")
	wantCharged(t, r, 60)
	if len(events.events) != 0 || r.Stats().Refusals != 0 {
		t.Error("the device's own refusal was reported as the budget's")
	}
}

// counting is a fake that counts the allocations that it fails.
type counting struct {
	*coretest.Fake
	failed uint64
}

func (c *counting) Allocate(ctx context.Context, req core.Request) (core.Block, error) {
	b, err := c.Fake.Allocate(ctx, req)
	if err != nil {
		c.failed++
	}
	return b, err
}

func (c *counting) Stats() core.Stats {
	s := c.Fake.Stats()
	s.Failures += c.failed
	return s
}

func TestAnAllocationFailsOnceInTheStatisticsOrNotAtAll(t *testing.T) {
	up := &counting{Fake: coretest.NewFake(0)}
	r := newBudget(t, up, Config{Limit: 100})
	for name, c := range map[string]struct {
		failures []error
		want     uint64
	}{"cured": {[]error{errMemory}, 0}, "tried twice": {[]error{errMemory, errMemory}, 1}, "of another kind": {[]error{errInjected}, 1}} {
		before := r.Stats().Failures
		up.FailNext("Allocate", c.failures...)
		if b, err := r.Allocate(t.Context(), core.Request{Bytes: 10}); err == nil {
			mustFree(t, r, b)
		}
		if got := r.Stats().Failures - before; got != c.want {
			t.Errorf("%s: %d failures, want %d", name, got, c.want)
		}
	}
}

func wantCalls(t *testing.T, fake *coretest.Fake, want ...string) {
	t.Helper()
	got := fake.Calls()
	if len(got) != len(want) {
		t.Fatalf("calls %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("call %d is %q, want %q", i, got[i], want[i])
		}
	}
}

func TestOutOfMemoryIsWhatTheCallerHearsIfTheBudgetFillsUpMeanwhile(t *testing.T) {
	d := newDevice()
	r := newBudget(t, d, Config{Limit: 100})
	d.failNext("Allocate", errMemory)
	d.onReap = func() { mustAllocate(t, r, core.Request{Bytes: 60}) }
	if _, err := r.Allocate(context.Background(), core.Request{Bytes: 60}); err != error(errMemory) {
		t.Errorf("got %v", err)
	}
	wantCharged(t, r, 60)
}

func TestAFailedReapIsNotSwallowed(t *testing.T) {
	fake := coretest.NewFake(0)
	r := newBudget(t, fake, Config{Limit: 100})
	ctx := context.Background()
	mustAllocate(t, r, core.Request{Bytes: 40})
	fake.FailNext("ReapPending", errLost)
	if _, err := r.Allocate(ctx, core.Request{Bytes: 61}); !errors.Is(err, core.ErrOutOfBudget) || !errors.Is(err, core.ErrSticky) {
		t.Errorf("refused allocation: %v", err)
	}
	fake.FailNext("ReapPending", errLost)
	if _, err := r.Reserve(ctx, 61, ""); !errors.Is(err, core.ErrOutOfBudget) || !errors.Is(err, core.ErrSticky) {
		t.Errorf("refused reservation: %v", err)
	}
	fake.FailNext("Allocate", errMemory, errMemory)
	fake.FailNext("ReapPending", errLost)
	if _, err := r.Allocate(ctx, core.Request{Bytes: 1}); !errors.Is(err, core.ErrOutOfMemory) || !errors.Is(err, core.ErrSticky) {
		t.Errorf("out of memory: %v", err)
	}
	fake.FailNext("Allocate", errMemory)
	fake.FailNext("ReapPending", errLost)
	mustAllocate(t, r, core.Request{Bytes: 1}) // it worked after all
	wantCharged(t, r, 41)
}

func TestMalformedRequestsNeverReachTheLedger(t *testing.T) {
	r := newBudget(t, coretest.NewFake(0), Config{Limit: 100})
	c := mustReserve(t, r, 10)
	for _, req := range []core.Request{
		{}, {Bytes: 1, Requested: 2}, {Bytes: 1, Requested: 2, Claim: c.ID}, {Bytes: 1, Align: 3}, {Bytes: 1, Claim: 1 << 60},
	} {
		if _, err := r.Allocate(context.Background(), req); !errors.Is(err, core.ErrInvalidRequest) {
			t.Errorf("%+v: %v", req, err)
		}
	}
	must.Do(t, r.ReleaseClaim(context.Background(), c.ID))
	wantEmpty(t, r)
}

func TestBlocksAllocatedAroundTheBudgetAreIgnored(t *testing.T) {
	fake := coretest.NewFake(0)
	r := newBudget(t, fake, Config{Limit: 100})
	around := mustAllocate(t, fake, core.Request{Bytes: 500})
	mustAllocate(t, r, core.Request{Bytes: 10})
	mustFree(t, r, around)
	fake.Pass()
	wantCharged(t, r, 10)
}

func TestAnUnderflowIsCountedAndStopsAtZero(t *testing.T) {
	r := newBudget(t, coretest.NewFake(0), Config{Limit: 100})
	mustAllocate(t, r, core.Request{Bytes: 10})
	r.ledger.give(11) // nothing in the package does
	if s := r.Stats(); s.Underflows != 1 || s.Charged != 0 {
		t.Errorf("underflows %d, charged %d", s.Underflows, s.Charged)
	}
}
