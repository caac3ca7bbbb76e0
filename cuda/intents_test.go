package cuda_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

func TestConflictingIntentIsRefusedAndNamesItsHolder(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block, other := b.alloc(s[0], 256), b.alloc(s[0], 256)
	holder, err := b.Runtime.PrepareUse(ctx, core.UseRequest{Stream: s[0].ID(), Launch: "sort", Uses: declared(writes(block))})
	must(t, err)
	_, err = b.Runtime.PrepareUse(ctx, core.UseRequest{Stream: s[1].ID(), Uses: declared(join([][]use{reads(other, block)}))})
	var misuse *core.StreamMisuseError
	if !errors.As(err, &misuse) || misuse.Holder == nil {
		t.Fatalf("got %v, want a misuse that names the holder", err)
	}
	equal(t, "the holder", *misuse.Holder, core.UseRecord{Launch: "sort", Stream: s[0].ID(), Access: core.Write})
	equal(t, "intents left by the refusal", b.Runtime.Stats().OpenIntents, 1)
	b.launch(s[0], readWrites(block)) // one stream's launches are in order
	must(t, b.Runtime.FinishUse(ctx, holder))
	b.launch(s[1], reads(block, other))
	b.free(block, other)
}

func TestReadsOnTwoStreamsDoNotConflict(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	b.launch(s[0], writes(block))
	first := b.prepare(s[0], reads(block))
	second := b.prepare(s[1], reads(block))
	b.enqueue(s[0], reads(block))
	b.enqueue(s[1], reads(block))
	must(t, b.Runtime.FinishUse(ctx, second))
	must(t, b.Runtime.FinishUse(ctx, first))
	b.free(block)
}

func TestLaunchWaitsForAConflictingIntent(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	holder := b.prepare(s[0], writes(block))

	bounded, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	none := func(context.Context) error { t.Error("launched over a conflict"); return nil }
	err := b.Runtime.Launch(bounded, s[1].ID(), declared(reads(block)), none)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, core.ErrStreamMisuse) {
		t.Errorf("got %v, want a bounded wait", err)
	}

	done := make(chan error)
	go func() {
		done <- b.Runtime.Launch(ctx, s[1].ID(), declared(reads(block)), func(context.Context) error {
			return b.kernel.Enqueue(s[1].Handle(), grid, mixArgs(1, reads(block))...)
		})
	}()
	time.Sleep(5 * time.Millisecond)
	b.enqueue(s[0], writes(block))
	must(t, b.Runtime.FinishUse(ctx, holder))
	must(t, <-done)
	b.free(block)
}

func TestFreeDuringAnOpenIntentIsQueuedWhenItCloses(t *testing.T) {
	for name, end := range map[string]func(*bench, core.Ticket) error{
		"finish": func(b *bench, t core.Ticket) error { return b.Runtime.FinishUse(ctx, t) },
		"abort":  func(b *bench, t core.Ticket) error { return b.Runtime.AbortUse(ctx, t) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			s := b.leases(2)
			block := b.alloc(s[0], 256)
			ticket := b.prepare(s[1], writes(block))
			b.free(block)
			equal(t, "state", b.Runtime.State(block.ID), core.Retired)
			b.drain()
			equal(t, "blocks still on the device", b.Sim.Books().LiveBlocks, 1)
			if name == "finish" {
				b.enqueue(s[1], writes(block))
			}
			must(t, end(b, ticket))
			b.drain()
			equal(t, "state", b.Runtime.State(block.ID), core.Freed)
			equal(t, "blocks still on the device", b.Sim.Books().LiveBlocks, 0)
		})
	}
}

func TestAbortedLaunchLeavesNoAccess(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	b.launch(s[0], writes(block))
	must(t, b.Runtime.AbortUse(ctx, b.prepare(s[1], writes(block))))
	equal(t, "aborts", b.Runtime.Stats().Aborts, 1)
	equal(t, "a launch at home", b.launch(s[0], writes(block)), fenced{0, 0, 1})
	b.free(block)
}

func TestUnknownAndStaleHandlesAreRefused(t *testing.T) {
	b := newBench(t)
	s := b.leases(1)
	block := b.alloc(s[0], 256)
	inside, outside, elsewhere := block.ID, block.ID, block.ID
	inside.Ptr += 255
	outside.Ptr += 256
	elsewhere.Ordinal = 3
	must(t, b.Runtime.AbortUse(ctx, b.prepare(s[0], writes(core.Block{ID: inside}))))
	for name, id := range map[string]core.BlockID{"outside": outside, "elsewhere": elsewhere} {
		_, err := b.Runtime.Deallocate(ctx, id)
		if !errors.Is(err, core.ErrStreamMisuse) {
			t.Errorf("%s: got %v, want a stream misuse", name, err)
		}
	}
	b.free(block)
	for name, call := range map[string]func() error{
		"free":    func() error { _, err := b.Runtime.Deallocate(ctx, block.ID); return err },
		"prepare": func() error { _, err := b.Runtime.PrepareBlockUse(ctx, block.ID, s[0].ID(), core.Read); return err },
		"record":  func() error { return b.Runtime.RecordBlockUse(ctx, block.ID, s[0].ID()) },
	} {
		if err := call(); !errors.Is(err, core.ErrUseAfterFree) {
			t.Errorf("%s of a freed block: got %v", name, err)
		}
	}
}
