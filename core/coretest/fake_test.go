package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func allocate(t *testing.T, r core.Resource) core.Block {
	t.Helper()
	return must.Get(r.Allocate(t.Context(), core.Request{Bytes: 64, Stream: 1, Tag: "test"}))(t)
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestFakeNotesItsCalls(t *testing.T) {
	fake, ctx := coretest.NewFake(0), t.Context()
	b := allocate(t, fake)
	ticket, err := fake.PrepareUse(ctx, core.UseRequest{Launch: "sort", Uses: []core.Use{{Block: b.ID, Access: core.Read}}})
	expect(t, "prepare", err, nil)
	expect(t, "finish", fake.FinishUse(ctx, ticket), nil)
	expect(t, "record", fake.RecordUse(ctx, b.ID, 3), nil)
	_, err = fake.Deallocate(ctx, b.ID)
	expect(t, "deallocate", err, nil)
	expect(t, "reap", fake.ReapPending(ctx), nil)
	expect(t, "drain", fake.Drain(ctx), nil)
	g := uint64(b.ID.Generation)
	expect(t, "calls", fmt.Sprintf("%q", fake.Calls()),
		fmt.Sprintf(`["Allocate 64 test" "PrepareUse sort 1" "FinishUse " "RecordUse %d 3" "Deallocate %d" "ReapPending " "Drain "]`, g, g))
	expect(t, "number of calls after they were taken", len(fake.Calls()), 0)
}

func TestFakeFailsAsScripted(t *testing.T) {
	fake, ctx := coretest.NewFake(0), t.Context()
	fake.FailNext("Allocate", io.EOF, nil, io.ErrNoProgress)
	for _, want := range []error{io.EOF, nil, io.ErrNoProgress, nil} {
		_, err := fake.Allocate(ctx, core.Request{Bytes: 1})
		expect(t, "allocate", err, want)
	}
	expect(t, "live blocks", fake.Stats().Live.Blocks, uint64(2))

	b := allocate(t, fake)
	ticket, err := fake.PrepareUse(ctx, core.UseRequest{Uses: []core.Use{{Block: b.ID, Access: core.Read}}})
	expect(t, "prepare", err, nil)
	fake.FailNext("FinishUse", io.EOF)
	expect(t, "finish", fake.FinishUse(ctx, ticket), io.EOF)
	expect(t, "whether the failed finish left the ticket open", ticket.IsOpen(), false)
	fake.FailNext("Drain", io.EOF)
	_, err = fake.Deallocate(ctx, b.ID)
	expect(t, "deallocate", err, nil)
	expect(t, "drain", fake.Drain(ctx), io.EOF)
	expect(t, "state after a failed drain", fake.State(b.ID), core.Retired)
}

func TestFakeTakesAnyStreamUntilOneIsLeased(t *testing.T) {
	fake, ctx := coretest.NewFake(0), t.Context()
	b := allocate(t, fake)
	expect(t, "record on a made-up stream", fake.RecordUse(ctx, b.ID, 42), nil)
	stream, release := fake.Lease()
	expect(t, "record on the leased stream", fake.RecordUse(ctx, b.ID, stream), nil)
	expect(t, "record on the default stream", fake.RecordUse(ctx, b.ID, core.DefaultStream), nil)
	expect(t, "whether a made-up stream is refused", errors.Is(fake.RecordUse(ctx, b.ID, 42), core.ErrStreamMisuse), true)
	release()
	expect(t, "whether the released stream is refused", errors.Is(fake.RecordUse(ctx, b.ID, stream), core.ErrStreamMisuse), true)
	if next, _ := fake.Lease(); next == stream {
		t.Errorf("stream %v was leased twice", stream)
	}
}

type notices struct{ blocks []core.Block }

func (n *notices) Released(b core.Block) { n.blocks = append(n.blocks, b) }

func TestFakePassesFreesInOrder(t *testing.T) {
	fake, heard := coretest.NewFake(0), new(notices)
	fake.Subscribe(heard)
	a, b, held := allocate(t, fake), allocate(t, fake), allocate(t, fake)
	ticket, err := fake.PrepareUse(t.Context(), core.UseRequest{Uses: []core.Use{{Block: held.ID, Access: core.Read}}})
	expect(t, "prepare", err, nil)
	for _, block := range []core.Block{b, held, a} {
		_, err := fake.Deallocate(t.Context(), block.ID)
		expect(t, "deallocate", err, nil)
	}
	fake.Pass()
	expect(t, "number of notices", len(heard.blocks), 2)
	expect(t, "first", heard.blocks[0].ID, b.ID)
	expect(t, "second", heard.blocks[1].ID, a.ID)
	expect(t, "state of the held block", fake.State(held.ID), core.Retired)
	expect(t, "free counters", fake.FreedOn(1), core.FreeCounters{Queued: 128, Completed: 128})

	expect(t, "finish", fake.FinishUse(context.Background(), ticket), nil)
	expect(t, "free counters after the intent", fake.FreedOn(1), core.FreeCounters{Queued: 192, Completed: 128})
	fake.Pass()
	expect(t, "third", heard.blocks[2].ID, held.ID)
}

func TestFakeReleasesAtFree(t *testing.T) {
	fake, heard := coretest.NewFake(0), new(notices)
	fake.Subscribe(heard)
	fake.ReleaseAtFree()
	b := allocate(t, fake)
	freed, err := fake.Deallocate(t.Context(), b.ID)
	expect(t, "deallocate", err, nil)
	expect(t, "state", freed.State, core.Freed)
	expect(t, "number of notices", len(heard.blocks), 1)
	expect(t, "free counters", fake.FreedOn(1), core.FreeCounters{Queued: 64, Completed: 64})
}
