package coretest_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
)

// call is one call of each method that can fail.
var call = map[string]func(ctx context.Context, r core.Resource, b core.Block, t core.Ticket) error{
	"Allocate": func(ctx context.Context, r core.Resource, _ core.Block, _ core.Ticket) error {
		b, err := r.Allocate(ctx, core.Request{Bytes: 8})
		if err != nil && b != (core.Block{}) {
			return errors.New("a failed allocation returned a block")
		}
		return err
	},
	"Deallocate": func(ctx context.Context, r core.Resource, b core.Block, _ core.Ticket) error {
		_, err := r.Deallocate(ctx, b.ID)
		return err
	},
	"PrepareUse": func(ctx context.Context, r core.Resource, b core.Block, _ core.Ticket) error {
		_, err := r.PrepareUse(ctx, core.UseRequest{Uses: []core.Use{{Block: b.ID, Access: core.Read}}})
		return err
	},
	"FinishUse": func(ctx context.Context, r core.Resource, _ core.Block, t core.Ticket) error {
		return r.FinishUse(ctx, t)
	},
	"AbortUse": func(ctx context.Context, r core.Resource, _ core.Block, t core.Ticket) error {
		return r.AbortUse(ctx, t)
	},
	"RecordUse": func(ctx context.Context, r core.Resource, b core.Block, _ core.Ticket) error {
		return r.RecordUse(ctx, b.ID, 1)
	},
	"Reserve": func(ctx context.Context, r core.Resource, _ core.Block, _ core.Ticket) error {
		_, err := r.Reserve(ctx, 8, "")
		return err
	},
	"ReleaseClaim": func(ctx context.Context, r core.Resource, _ core.Block, _ core.Ticket) error {
		return r.ReleaseClaim(ctx, 1)
	},
	"ReapPending": func(ctx context.Context, r core.Resource, _ core.Block, _ core.Ticket) error {
		return r.ReapPending(ctx)
	},
	"Drain": func(ctx context.Context, r core.Resource, _ core.Block, _ core.Ticket) error { return r.Drain(ctx) },
}

// granting is a fake that grants claims and counts those that are out.
type granting struct {
	*coretest.Fake
	out int
}

func (g *granting) Reserve(context.Context, uint64, core.Tag) (core.Claim, error) {
	g.out++
	return core.Claim{ID: 1}, nil
}

func (g *granting) ReleaseClaim(context.Context, core.ClaimID) error {
	g.out--
	return nil
}

func TestFaultsFailEachMethod(t *testing.T) {
	for method, do := range call {
		for _, after := range []bool{false, true} {
			upstream := &granting{Fake: coretest.NewFake(0)}
			faults := coretest.NewFaults(upstream)
			b := allocate(t, faults)
			ticket, err := faults.PrepareUse(t.Context(), core.UseRequest{Uses: []core.Use{{Block: b.ID, Access: core.Read}}})
			expect(t, "prepare", err, nil)
			open, claims := upstream.Stats().OpenIntents, upstream.out

			faults.Inject(coretest.Fault{Method: method, Call: faults.Count(method) + 1, Err: io.EOF, After: after})
			expect(t, method, do(t.Context(), faults, b, ticket), io.EOF)
			expect(t, method+": faults that fired", faults.Fired(), 1)
			expect(t, method+": live blocks", upstream.Stats().Live.Blocks, liveAfter(method, after))
			if ticket.IsOpen() {
				expect(t, method+": open intents", upstream.Stats().OpenIntents, open)
			} else {
				expect(t, method+": open intents after an end", upstream.Stats().OpenIntents, open-1)
			}
			if method != "ReleaseClaim" {
				expect(t, method+": claims that are out", upstream.out, claims)
			}
		}
	}
}

// liveAfter is 1 except after the one failure that is a lost answer.
func liveAfter(method string, after bool) uint64 {
	if method == "Deallocate" && after {
		return 0
	}
	return 1
}

func TestFaultsFailTheCallsNamed(t *testing.T) {
	faults := coretest.NewFaults(coretest.NewFake(0),
		coretest.Fault{Method: "ReapPending", Call: 2, Err: io.EOF}, coretest.Fault{Method: "Drain", Err: io.ErrNoProgress})
	for _, want := range []error{nil, io.EOF, nil} {
		expect(t, "reap", faults.ReapPending(t.Context()), want)
		expect(t, "drain", faults.Drain(t.Context()), io.ErrNoProgress)
	}
	expect(t, "calls of reap", faults.Count("ReapPending"), 3)
	faults.Clear()
	expect(t, "drain after the faults were cleared", faults.Drain(t.Context()), nil)
	expect(t, "faults that fired", faults.Fired(), 4)
}

func TestFaultsPassOnUpstreamsOwnErrors(t *testing.T) {
	fake := coretest.NewFake(0)
	faults := coretest.NewFaults(fake)
	for _, method := range []string{"Allocate", "Deallocate", "PrepareUse", "FinishUse", "AbortUse", "RecordUse", "ReapPending", "Drain"} {
		b := allocate(t, fake)
		ticket, err := fake.PrepareUse(t.Context(), core.UseRequest{Uses: []core.Use{{Block: b.ID, Access: core.Read}}})
		expect(t, "prepare", err, nil)
		fake.FailNext(method, io.ErrClosedPipe)
		expect(t, method, call[method](t.Context(), faults, b, ticket), io.ErrClosedPipe)
	}
	expect(t, "faults that fired", faults.Fired(), 0)
}

func TestFaultsRefuseWhatCanNeverFire(t *testing.T) {
	for _, fault := range []coretest.Fault{{Method: "Stats", Err: io.EOF}, {Method: "Alocate", Err: io.EOF}, {Method: "Allocate"}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("fault %+v was accepted", fault)
				}
			}()
			coretest.NewFaults(coretest.NewFake(0), fault)
		}()
	}
}
