package debugguard_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestFreeDuringAnIntentWaitsForItsEnd(t *testing.T) {
	for _, end := range []string{"finish", "abort"} {
		t.Run(end, func(t *testing.T) {
			b := newBench(t, debugguard.Hunt)
			block := b.alloc(300)
			first, second := b.prepare("first", 1, block, block), b.prepare("second", 1, block)
			if s := b.free(block).State; s != core.Retired {
				t.Fatalf("freed block is %v", s)
			}
			if s := b.guard.Stats(); s.Live.Blocks != 0 || s.Pending.Requested != 300 || s.Deallocations != 1 {
				t.Errorf("stats %+v", s)
			}
			expect.ErrorOf(b.guard.PrepareUse(ctx, core.UseRequest{Uses: []core.Use{{Block: block.ID, Access: core.Read}}}))(t, core.ErrUseAfterFree, "prepare of a retired block")
			b.want(names.FindingStaleHandle)
			b.finish(first)
			if s := b.guard.State(block.ID); s != core.Retired {
				t.Errorf("with one intent open the block is %v", s)
			}
			b.mem.poke(block.ID.Ptr, 300) // the second launch, which is still open
			if end == "finish" {
				b.finish(second)
			} else if err := b.guard.AbortUse(ctx, second); err != nil {
				t.Fatal(err)
			}
			if s := b.guard.State(block.ID); s != core.Quarantined {
				t.Errorf("after the last intent the block is %v", s)
			}
			b.empty()
			b.want()
		})
	}
}

func TestTicketEndsOnce(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	block := b.alloc(64)
	ticket := b.prepare("once", 1, block)
	b.finish(ticket)
	for range 2 {
		expect.Error(t, b.guard.FinishUse(ctx, ticket), core.ErrStreamMisuse, "second finish")
		expect.Error(t, b.guard.AbortUse(ctx, core.Ticket{}), core.ErrStreamMisuse, "empty ticket")
	}
	b.free(block)
	b.empty()
}

func TestQuarantineIsLimitedByBytes(t *testing.T) {
	b := newBench(t, debugguard.Hunt, func(c *debugguard.Config) { c.QuarantineBytes = 8 * 1024 })
	var blocks []core.Block
	for range 20 {
		blocks = append(blocks, b.alloc(512)) // 1024 with its red zones
	}
	for i, block := range blocks {
		b.free(block)
		if q := b.guard.GuardStats().Quarantine; q.Bytes > 8*1024 {
			t.Fatalf("after %d frees quarantine holds %+v", i+1, q)
		}
	}
	if first, last := b.guard.State(blocks[0].ID), b.guard.State(blocks[19].ID); first != core.Retired || last != core.Quarantined {
		t.Errorf("the oldest is %v, the newest %v", first, last)
	}
	huge := b.alloc(10_000)
	if s := b.free(huge).State; s != core.Retired {
		t.Errorf("a block larger than quarantine is %v", s)
	}
	if q := b.guard.GuardStats().Quarantine.Blocks; q == 0 {
		t.Error("a block larger than quarantine drove out the others")
	}
	b.empty()
	b.want()
}

func TestQuarantineIsLimitedByAge(t *testing.T) {
	b := newBench(t, debugguard.Hunt, func(c *debugguard.Config) { c.QuarantineAge = time.Second })
	old := b.alloc(64)
	young := b.alloc(64)
	b.free(old)
	b.clock.advance(900 * time.Millisecond)
	b.free(young)
	b.clock.advance(200 * time.Millisecond)
	must.Do(t, b.guard.ReapPending(ctx))
	if s := b.guard.State(old.ID); s != core.Retired {
		t.Errorf("the old block is %v", s)
	}
	if s := b.guard.State(young.ID); s != core.Quarantined {
		t.Errorf("the young block is %v", s)
	}
	b.empty()
}

func TestEvictionComparesInBatches(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	var blocks []core.Block
	for i := range 100 {
		blocks = append(blocks, b.allocOn(core.StreamID(1+i%2), 64))
	}
	for _, block := range blocks {
		b.free(block)
	}
	b.fake.Calls()
	must.Do(t, b.guard.Flush(ctx))
	calls := b.fake.Calls()
	batches := slices.DeleteFunc(slices.Clone(calls), func(c string) bool { return c != "PrepareUse gpumem.guard.verify 50" })
	if len(batches) != 2 {
		t.Errorf("100 blocks of two streams in %d batches of 50: %v", len(batches), calls)
	}
	b.empty()
	b.want()
}

func TestGuardNeverWaitsForTheDevice(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	b.mem.hold()
	block := b.alloc(256)
	b.mem.poke(block.ID.Ptr+256, 1)
	b.free(block)
	must.Do(t, b.guard.Flush(ctx))
	must.Do(t, b.guard.ReapPending(ctx))
	if s := b.guard.State(block.ID); s != core.Retired {
		t.Errorf("the block waits for its verdict: %v", s)
	}
	b.want()
	if n := b.guard.GuardStats().Checks; n != 1 {
		t.Errorf("%d verdicts awaited", n)
	}
	late, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	expect.Error(t, b.guard.Drain(late), context.DeadlineExceeded, "drain of a stuck device")
	b.mem.release()
	b.free(b.alloc(1)) // reads no verdict of others
	b.want()
	must.Do(t, b.guard.ReapPending(ctx))
	b.want(names.FindingOutOfBoundsWrite)
	b.empty()
	b.want()
}

func TestCallersSeeTheirBlockAndTheNoticeOfIt(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	var heard []core.Block
	b.guard.Subscribe(listener(func(block core.Block) { heard = append(heard, block) }))
	block := b.alloc(1000)
	if block.Bytes != 1000 || block.Requested != 1000 || block.ID.Ptr%core.DefaultAlign != 0 {
		t.Errorf("block %+v", block)
	}
	b.free(block)
	if len(heard) != 0 {
		t.Error("a quarantined block was announced as released")
	}
	b.empty()
	want := block
	want.State = core.Freed
	if len(heard) != 1 || heard[0] != want {
		t.Errorf("heard %+v, want %+v", heard, want)
	}
}

type listener func(core.Block)

func (l listener) Released(b core.Block) { l(b) }

func TestStatsAreTheCallers(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	x, y := b.alloc(1000), b.alloc(500)
	b.launch("use", 1, func() {}, x)
	b.free(x)
	z := b.alloc(700)
	s := b.guard.Stats()
	if s.Live.Requested != 1200 || s.Live.Blocks != 2 || s.Quarantined.Requested != 1000 || s.Quarantined.Bytes != 1536 {
		t.Errorf("live %+v, quarantined %+v", s.Live, s.Quarantined)
	}
	if s.PeakRequested != 1500 || s.PeakBytes != 1536+1024 || s.PeakOutstanding != s.Outstanding().Bytes {
		t.Errorf("peaks %d requested, %d live and %d bytes of %+v", s.PeakRequested, s.PeakBytes, s.PeakOutstanding, s.Outstanding())
	}
	if s.Allocations != 3 || s.Deallocations != 1 || s.Launches != 1 || s.Aborts != 0 {
		t.Errorf("counts %+v", s)
	}
	b.free(y)
	b.free(z)
	b.empty()
	if s := b.guard.Stats(); s.PeakRequested != 1500 || s.Deallocations != 3 || s.Launches != 1 {
		t.Errorf("at the end %+v", s)
	}
}

func TestBlocksListsWhatTheLedgerAndTheUpstreamKnow(t *testing.T) {
	b := newBench(t, debugguard.Off)
	unknown := b.alloc(10)
	must.Do(t, b.guard.SetMode(ctx, debugguard.Hunt))
	known, gone := b.alloc(20), b.alloc(30)
	b.launch("use", 1, func() {}, known)
	b.free(gone)
	states := map[core.BlockID]core.BlockInfo{}
	b.guard.Inspect().Blocks(func(info core.BlockInfo) bool {
		if _, twice := states[info.Block.ID]; twice {
			t.Errorf("%v listed twice", info.Block.ID)
		}
		states[info.Block.ID] = info
		return true
	})
	if len(states) != 3 || states[unknown.ID].Block.State != core.Live || states[gone.ID].Block.State != core.Quarantined {
		t.Errorf("blocks %v", states)
	}
	if info := states[known.ID]; len(info.Uses) != 1 || len(info.AllocStack) == 0 || info.Block != known {
		t.Errorf("known block %+v", info)
	}
	b.free(known)
	b.free(unknown)
	b.empty()
	b.want()
}

func TestSynchronousUpstream(t *testing.T) {
	b := newBench(t, debugguard.Off)
	b.fake.ReleaseAtFree()
	b.guard = b.over(untracked{b.fake}, debugguard.Hunt)
	if f := b.guard.Features(); f.Has(core.UseTracking) || !f.Has(core.DeviceChecks) {
		t.Errorf("features %v", f)
	}
	b.mem.hold()
	good, bad := b.alloc(100), b.alloc(100)
	b.mem.poke(bad.ID.Ptr+100, 1)
	b.free(good)
	b.free(bad)
	b.mem.poke(good.ID.Ptr, 1)
	b.drain()
	b.want(names.FindingUseAfterFreeWrite, names.FindingOutOfBoundsWrite)
	if slices.ContainsFunc(b.fake.Calls(), func(c string) bool { return strings.HasPrefix(c, "Prepare") }) {
		t.Error("the guard prepared a use on a resource that tracks none")
	}
	b.mem.release()
	b.empty()
}

func TestStreamGivenBackBeforeEviction(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	block := b.allocOn(7, 64)
	b.free(block)
	b.mem.poke(block.ID.Ptr, 1)
	b.fake.FailNext("PrepareUse", &core.StreamMisuseError{Op: "PrepareUse", Reason: "the lease of stream 7 was released"})
	b.drain()
	b.want(names.FindingUseAfterFreeWrite)
	b.empty()
}

// A lease may be given back behind the intent too: the guard's device operation
// is refused then, in each of the places where it works on a block's stream.
func TestStreamGivenBackBehindTheIntent(t *testing.T) {
	gone := core.NotEnqueued(&core.StreamMisuseError{Op: "DeviceOps", Stream: 7, Unleased: true, Reason: "the lease of stream 7 was released"})
	for when, op := range map[string]string{"arm": "Fill", "free": "Fill", "eviction": "Verify"} {
		t.Run(when, func(t *testing.T) {
			b := newBench(t, debugguard.Hunt)
			refuse := func(at string) {
				if at == when {
					b.mem.failNext(op, gone)
				}
			}
			refuse("arm")
			block := b.allocOn(7, 64)
			refuse("free")
			b.free(block)
			b.mem.poke(block.ID.Ptr, 1)
			refuse("eviction")
			b.drain()
			if s := b.guard.GuardStats(); s.Unchecked != 0 || b.mem.unmet() != 0 {
				t.Errorf("%d left unchecked, %d refusals not met", s.Unchecked, b.mem.unmet())
			}
			b.want(names.FindingUseAfterFreeWrite)
			b.empty()
		})
	}
}
