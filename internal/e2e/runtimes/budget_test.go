package runtimes_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/decorators/logging"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/metrics"
)

// refusals are the records of refusals in the history.
func refusals(rt *fencepost.Runtime) (told, relieved []logging.Record) {
	for _, r := range rt.History().Snapshot() {
		switch {
		case r.Event.Op != oplog.OpRefusal:
		case r.Event.Relieved:
			relieved = append(relieved, r)
		default:
			told = append(told, r)
		}
	}
	return told, relieved
}

// One refusal, looked at from every side: the caller's error, the history,
// the counters.
func TestARefusalExplainsItselfThroughAllLayers(t *testing.T) {
	for _, guard := range e2e.GuardSettings {
		t.Run(guard, func(t *testing.T) {
			rt := e2e.Open(t, fencepost.Config{Budget: 64 << 20, Guard: fencepost.GuardMode(guard)})
			s := e2e.Lease(t, rt, "s")
			index := e2e.Allocate(t, rt, 40<<20, s.ID(), "index.build")
			sort := e2e.Allocate(t, rt, 8<<20, s.ID(), "sort")
			claim, err := rt.Reserve(t.Context(), 8<<20, "request")
			must.Do(t, err)

			_, err = rt.Allocate(t.Context(), core.Request{Bytes: 32 << 20, Stream: s.ID(), Tag: "join"})
			var refusal *core.OutOfBudgetError
			if !errors.As(err, &refusal) || !errors.Is(err, core.ErrOutOfBudget) {
				t.Fatalf("got %v, want an OutOfBudgetError", err)
			}
			if refusal.Requested != 32<<20 || refusal.Limit != 64<<20 || refusal.Tag != "join" || refusal.Claimed != 8<<20 {
				t.Errorf("the refusal says %+v", refusal)
			}
			if sum := refusal.Live + refusal.Pending + refusal.Quarantined + refusal.Claimed; sum != refusal.Limit-refusal.Remaining {
				t.Errorf("%d accounted for, %d not to be had: %v", sum, refusal.Limit-refusal.Remaining, refusal)
			}
			claimed := core.Holder{Tag: "request", State: core.Claimed, Bytes: 8 << 20, Blocks: 1} // before or behind "sort", with or without red zones
			if len(refusal.Holders) != 3 || refusal.Holders[0].Tag != "index.build" || refusal.Holders[0].State != core.Live || !slices.Contains(refusal.Holders, claimed) {
				t.Errorf("the holders are %+v", refusal.Holders)
			}
			if text := err.Error(); !strings.Contains(text, "index.build") || !strings.Contains(text, "remaining") {
				t.Errorf("the text explains nothing: %s", text)
			}

			told, relieved := refusals(rt)
			if len(relieved) != 0 || len(told) != 1 {
				t.Fatalf("history: %d told, %d relieved; the caller was told of one", len(told), len(relieved))
			}
			last := told[0].Event
			if last.Layer != "debugguard" || last.Tag != "join" || last.Requested != 32<<20 || !errors.Is(last.Err, core.ErrOutOfBudget) {
				t.Errorf("history: %+v", last)
			}
			ops := rt.Operations()
			if got := ops.Refusals(metrics.ReasonOutOfBudget); got != 1 {
				t.Errorf("the metric counts %d refusals, the caller was told 1", got)
			}
			if got := rt.Stats().Refusals; got != 1 {
				t.Errorf("Stats counts %d refusals, the caller was told 1", got)
			}
			expect.ErrorOf(rt.Reserve(t.Context(), 24<<20, "claim"))(t, core.ErrOutOfBudget, "a claim beyond what is left")
			if told, relieved := refusals(rt); len(relieved) != 0 || len(told) != 2 || told[1].Event.Tag != "claim" {
				t.Errorf("history of the claim: %d told, %d relieved", len(told), len(relieved))
			}
			e2e.Free(t, rt, index, sort)
			expect.Success(t, rt.ReleaseClaim(t.Context(), claim.ID))
		})
	}
}

// The guard's quarantine gives way before a request is refused; the caller
// hears nothing of it, the history does.
func TestTheGuardGivesUpQuarantineBeforeARequestIsRefused(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Budget: 8 << 20, Guard: "hunt", GuardConfig: debugguard.Config{QuarantineBytes: 16 << 20}})
	s := e2e.Lease(t, rt, "s")
	e2e.Free(t, rt, e2e.Allocate(t, rt, 6<<20, s.ID(), "first"))
	if got := rt.Stats().Quarantined.Requested; got != 6<<20 {
		t.Fatalf("%d bytes are quarantined, want %d", got, 6<<20)
	}
	b, err := rt.Allocate(t.Context(), core.Request{Bytes: 4 << 20, Stream: s.ID(), Tag: "second"})
	if err != nil {
		t.Fatalf("refused with %d bytes in quarantine: %v", rt.Stats().Quarantined.Bytes, err)
	}
	e2e.Free(t, rt, b)
	if told, relieved := refusals(rt); len(told) != 0 || len(relieved) != 1 || relieved[0].Event.Layer != "debugguard" || relieved[0].Event.Tag != "second" {
		t.Errorf("history of relief: %+v", relieved)
	}
	ops := rt.Operations()
	if ops.Refusals(metrics.ReasonOutOfBudget) != 0 || rt.Guard().GuardStats().Relieved != 1 {
		t.Errorf("%d refusals counted, %d relieved; the caller was told of none", ops.Refusals(metrics.ReasonOutOfBudget), rt.Guard().GuardStats().Relieved)
	}
}

// A claim is not lent what is pending, so it may have to be asked for again once
// the device has passed what quarantine held. Nothing is given up for one that is
// larger than the budget.
func TestTheGuardGivesUpQuarantineBeforeAClaimIsRefused(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Budget: 8 << 20, Guard: "hunt", GuardConfig: debugguard.Config{QuarantineBytes: 16 << 20, QuarantineAge: time.Hour}})
	e2e.Free(t, rt, e2e.Allocate(t, rt, 6<<20, core.DefaultStream, "first"))
	for _, ask := range []func() error{
		func() error { _, err := rt.Reserve(t.Context(), 8<<20+1, "hopeless"); return err },
		func() error { _, err := rt.Allocate(t.Context(), core.Request{Bytes: 8<<20 + 1}); return err },
	} {
		if err := ask(); !errors.Is(err, core.ErrOutOfBudget) || rt.Stats().Quarantined.Requested != 6<<20 {
			t.Errorf("%v, and %d bytes are left in quarantine", err, rt.Stats().Quarantined.Requested)
		}
	}
	claim, err := rt.Reserve(t.Context(), 4<<20, "second")
	for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); {
		if q := rt.Stats().Quarantined.Bytes; q != 0 {
			t.Fatalf("refused with %d bytes in quarantine: %v", q, err)
		}
		time.Sleep(time.Millisecond)
		claim, err = rt.Reserve(t.Context(), 4<<20, "second")
	}
	e2e.Succeed(t, "reserving what quarantine held", err)
	e2e.Succeed(t, "releasing it", rt.ReleaseClaim(t.Context(), claim.ID))
}

func TestAClaimIsDrawnThroughTheWholeStack(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Budget: 8 << 20, Guard: "hunt"})
	s := e2e.Lease(t, rt, "s")
	claim, err := rt.Reserve(t.Context(), 4<<20, "request")
	must.Do(t, err)
	if st := rt.Stats(); st.Claims != 1 || st.Claimed != 4<<20 || st.Charged != 4<<20 {
		t.Errorf("after Reserve: %d claims of %d, %d charged", st.Claims, st.Claimed, st.Charged)
	}
	expect.ErrorOf(rt.Reserve(t.Context(), 5<<20, "another"))(t, core.ErrOutOfBudget, "a claim beyond the limit")
	keys, err := cuda.Alloc[uint32](t.Context(), rt.Memory(), 1<<20, cuda.AllocOptions{Stream: s.ID(), Tag: "request", Claim: claim.ID})
	if err != nil {
		t.Fatalf("what was reserved was refused: %v", err)
	}
	if st := rt.Stats(); st.Claimed != 0 || st.Charged <= 4<<20 || st.Charged > 5<<20 {
		t.Errorf("drawn: %d claimed, %d charged; the guard's padding comes from the general ledger", st.Claimed, st.Charged)
	}
	_, err = rt.Allocate(t.Context(), core.Request{Bytes: 4096, Stream: s.ID(), Claim: claim.ID})
	var refusal *core.OutOfBudgetError
	if !errors.As(err, &refusal) || refusal.Claim != claim.ID {
		t.Errorf("an overdrawn claim: %v", err)
	}
	expect.Success(t, keys.Free(t.Context()))
	expect.Success(t, rt.ReleaseClaim(t.Context(), claim.ID))
	expect.Error(t, rt.ReleaseClaim(t.Context(), claim.ID), core.ErrInvalidRequest, "a claim released twice")
	expect.Success(t, rt.Drain(t.Context()))
	if st := rt.Stats(); st.Charged != 0 || st.Claims != 0 {
		t.Errorf("at the end: %d charged, %d claims", st.Charged, st.Claims)
	}
}

func TestTheLimitChangesAtRunTime(t *testing.T) {
	rt := e2e.Open(t, fencepost.Config{Budget: 4096, Guard: "off"})
	if _, err := rt.Allocate(t.Context(), core.Request{Bytes: 8192}); !errors.Is(err, core.ErrOutOfBudget) {
		t.Fatalf("got %v, want a refusal", err)
	}
	rt.Budget().SetLimit(1 << 20)
	e2e.Free(t, rt, e2e.Allocate(t, rt, 8192, core.DefaultStream, "a"))
}

// A stream reuses its own pending bytes in order, so the budget lends them; an
// isolated block's it never reuses: they are charged until they are back.
func TestTheBytesOfAnIsolatedBlockAreChargedUntilTheyAreBack(t *testing.T) {
	const size = 2 << 20
	for _, isolated := range []bool{false, true} {
		rt := e2e.Open(t, fencepost.Config{Budget: 3 * size, Guard: "off", Async: cuda.AsyncConfig{ReapInterval: -1}})
		s := e2e.Lease(t, rt, "s")
		take := func() (core.Block, error) {
			return rt.Allocate(t.Context(), core.Request{Bytes: size, Stream: s.ID(), Tag: "t", Isolated: isolated})
		}
		var blocks []core.Block
		for range 3 {
			b, err := take()
			must.Do(t, err)
			blocks = append(blocks, b)
		}
		letGo := e2e.Hold(t, rt, s.Handle())
		e2e.Free(t, rt, blocks[0])
		b, err := take()
		if refused := errors.Is(err, core.ErrOutOfBudget); refused != isolated {
			t.Errorf("isolated: %v; behind a free that is pending: %v", isolated, err)
		}
		letGo()
		if isolated {
			must.Do(t, rt.Drain(t.Context()))
			if b, err = take(); err != nil {
				t.Errorf("when the bytes are back: %v", err)
			}
		}
		e2e.Free(t, rt, blocks[1], blocks[2], b)
		must.Do(t, rt.Drain(t.Context()))
		if st := rt.Stats(); st.Charged != 0 || st.Isolated != 0 {
			t.Errorf("left over: %+v", st)
		}
	}
}
