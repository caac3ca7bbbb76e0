package debugguard_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestCleanProgramHasNoFinding(t *testing.T) {
	for _, mode := range []debugguard.Mode{debugguard.Off, debugguard.Ledger, debugguard.Sample, debugguard.Hunt} {
		t.Run(mode.String(), func(t *testing.T) {
			b := newBench(t, mode, func(c *debugguard.Config) { c.SampleBytes = 1 })
			for _, size := range []uint64{1, 7, 255, 256, 257, 4096, 100_000} {
				block := b.alloc(size)
				b.launch("fill", 2, func() { b.mem.poke(block.ID.Ptr, int(size)) }, block)
				b.free(block)
			}
			b.empty()
			b.want()
		})
	}
}

func TestWriteBehindABlockIsFound(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	block, bystander := b.alloc(100), b.alloc(100)
	b.launch("innocent", 3, func() {}, bystander)
	b.launch("overrun", 2, func() { b.mem.poke(block.ID.Ptr+100, 3) }, block)
	b.launch("later", 3, func() {}, bystander)
	b.free(block)
	b.free(bystander)
	b.drain()
	f := b.want(names.FindingOutOfBoundsWrite)[0]
	if f.Victim.ID != block.ID || f.Victim.Tag != "test" || f.Victim.Bytes != 100 {
		t.Errorf("victim %+v, want %+v", f.Victim, block)
	}
	if f.Offset != 100 || f.BadBytes != 3 || f.Expected == f.Seen {
		t.Errorf("offset %d, %d bad bytes, %#x instead of %#x", f.Offset, f.BadBytes, f.Seen, f.Expected)
	}
	var oob *core.OutOfBoundsError
	if !errors.As(f.Err, &oob) || oob.Generation != block.ID.Generation || oob.Offset != 100 || oob.Tag != "test" {
		t.Errorf("error %v", f.Err)
	}
	if len(f.Uses) != 1 || f.Uses[0].Launch != "overrun" {
		t.Errorf("uses %v", f.Uses)
	}
	if len(f.Suspects) != 3 || f.Suspects[0].Launch != "overrun" {
		t.Errorf("the launch that used the victim is not the first suspect: %v", f.Suspects)
	}
	wantStack(t, "allocation", f.AllocStack, "TestWriteBehindABlockIsFound")
	wantStack(t, "free", f.FreeStack, "TestWriteBehindABlockIsFound")
	b.empty()
	b.want()
}

func wantStack(t *testing.T, what string, s core.Stack, function string) {
	t.Helper()
	if !strings.Contains(strings.Join(s.Lines(), "\n"), function) {
		t.Errorf("the %s stack does not name %s: %v", what, function, s.Lines())
	}
}

func TestUnderflowBeforeTheBlock(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	block := b.alloc(64)
	b.launch("underrun", 1, func() { b.mem.poke(block.ID.Ptr-8, 4) }, block)
	b.free(block)
	b.drain()
	if f := b.want(names.FindingUnderflow)[0]; f.Offset != -8 || f.BadBytes != 4 {
		t.Errorf("offset %d, %d bad bytes", f.Offset, f.BadBytes)
	}
	b.empty()
}

func TestBothSidesAreTwoFindings(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	block := b.alloc(64)
	b.mem.poke(block.ID.Ptr-1, 66)
	b.free(block)
	b.drain()
	b.want(names.FindingUnderflow, names.FindingOutOfBoundsWrite)
}

func TestWriteAfterFree(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	block, other := b.alloc(1000), b.alloc(1000)
	b.launch("before", 1, func() {}, block)
	if s := b.free(block).State; s != core.Quarantined {
		t.Fatalf("freed block is %v", s)
	}
	b.launch("culprit", 2, func() { b.mem.poke(block.ID.Ptr+500, 1) }, other)
	b.drain()
	f := b.want(names.FindingUseAfterFreeWrite)[0]
	if f.Victim.ID != block.ID || f.Offset != 500 || f.BadBytes != 1 || !errors.Is(f.Err, core.ErrUseAfterFree) {
		t.Errorf("finding %+v", f)
	}
	if len(f.Suspects) != 1 || f.Suspects[0].Launch != "culprit" || f.Suspects[0].Stream != 2 {
		t.Errorf("suspects %v", f.Suspects)
	}
	b.free(other)
	b.empty()
	b.want()
}

// What goes around the runtime is nobody's launch: those that ran meanwhile are named in order
// of time, none of them as likelier than another, and the finding says what it may have been.
func TestWhereNoLaunchDeclaredTheVictimNoneIsLikelier(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	block, other := b.alloc(1000), b.alloc(1000)
	b.launch("before", 1, func() {}, block)
	b.free(block)
	for i := range 5 {
		b.launch(fmt.Sprint("innocent ", i), core.StreamID(1+i%2), func() {}, other)
	}
	b.mem.poke(block.ID.Ptr+500, 1)
	b.drain()
	f := b.want(names.FindingUseAfterFreeWrite)[0]
	if got := launchesOf(f.Suspects); !f.Unranked || !slices.Equal(got, []string{"innocent 0", "innocent 1", "innocent 2", "innocent 3", "innocent 4"}) {
		t.Errorf("suspects %v, unranked %v", got, f.Unranked)
	}
	if !strings.Contains(f.Text, "no declared launch touched it: undeclared work, or code that does not go through Fencepost") || strings.Contains(f.String(), "suspect 1") || strings.Contains(f.String(), "culprit") {
		t.Errorf("the finding says %s", f.String())
	}
	b.free(other)
	b.empty()
}

// A launch that was given a pointer into the freed block is the likeliest, however many ran
// since.
func TestALaunchThatWasGivenAPointerIntoTheVictimIsSuspectedFirst(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	block, other := b.alloc(1000), b.alloc(1000)
	b.launch("before", 1, func() {}, block)
	b.free(block)
	given := func(name string) core.Ticket {
		return must.Get(b.guard.PrepareUse(ctx, core.UseRequest{Stream: 2, Launch: name, Uses: []core.Use{{Block: other.ID, Access: core.Write}}, Pointers: []uint64{block.ID.Ptr + 500}}))(t)
	}
	late := given("late")
	b.mem.poke(block.ID.Ptr+500, 1)
	b.finish(late)
	must.Do(t, b.guard.AbortUse(ctx, given("aborted")))
	for i := range 20 {
		b.launch(fmt.Sprint("innocent ", i), core.StreamID(1+i%2), func() {}, other)
	}
	b.drain()
	f := b.want(names.FindingStaleHandle, names.FindingStaleHandle, names.FindingUseAfterFreeWrite)[2]
	if f.Unranked || len(f.Suspects) == 0 || f.Suspects[0].Launch != "late" {
		t.Errorf("suspects %v, unranked %v", launchesOf(f.Suspects), f.Unranked)
	}
	if got := launchesOf(f.Uses); !slices.Equal(got, []string{"late", "before"}) {
		t.Errorf("the victim was used by %v", got)
	}
	b.free(other)
	b.empty()
}

// A block remembers its last four uses. The launch that wrote beside it may be an older one.
func TestALaunchThatDeclaredTheVictimLongAgoIsSuspectedBeforeOthers(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	block, other := b.alloc(100), b.alloc(100)
	b.launch("overrun", 1, func() { b.mem.poke(block.ID.Ptr+100, 3) }, block)
	for i := range 5 {
		b.launch(fmt.Sprint("user ", i), 1, func() {}, block)
	}
	for i := range 20 {
		b.launch(fmt.Sprint("innocent ", i), core.StreamID(1+i%2), func() {}, other)
	}
	b.free(block)
	b.drain()
	f := b.want(names.FindingOutOfBoundsWrite)[0]
	if got := launchesOf(f.Suspects); f.Unranked || len(got) < 7 || !slices.Equal(got[:6], []string{"user 4", "user 3", "user 2", "user 1", "user 0", "overrun"}) {
		t.Errorf("suspects %v", got)
	}
	b.free(other)
	b.empty()
}

func TestLaunchStillRunningAtTheFreeIsSuspected(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	block, other := b.alloc(1000), b.alloc(1000)
	b.launch("undeclared", 2, func() {}, other)
	b.free(block)
	b.mem.poke(block.ID.Ptr, 1)
	b.drain()
	if f := b.want(names.FindingUseAfterFreeWrite)[0]; len(f.Suspects) != 1 || f.Suspects[0].Launch != "undeclared" {
		t.Errorf("suspects %v", f.Suspects)
	}
}

func TestCopiedRedZoneDoesNotPass(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	first, second := b.alloc(256), b.alloc(256)
	b.mem.copy(second.ID.Ptr+256, first.ID.Ptr+256, 64)
	b.free(first)
	b.free(second)
	b.drain()
	if f := b.want(names.FindingOutOfBoundsWrite)[0]; f.Victim.ID != second.ID {
		t.Errorf("victim %v", f.Victim)
	}
}

func TestDoubleFree(t *testing.T) {
	for _, mode := range []debugguard.Mode{debugguard.Ledger, debugguard.Hunt} {
		t.Run(mode.String(), func(t *testing.T) {
			b := newBench(t, mode, func(c *debugguard.Config) { c.Advanced.StackBytes = 1 })
			block := b.alloc(512)
			b.free(block)
			refused := func(state core.BlockState) {
				t.Helper()
				b.fake.Calls()
				_, err := b.guard.Deallocate(ctx, block.ID)
				var uaf *core.UseAfterFreeError
				if !errors.As(err, &uaf) || uaf.State != state || uaf.Tag != "test" {
					t.Fatalf("second free: %v", err)
				}
				if calls := b.fake.Calls(); len(calls) != 0 {
					t.Errorf("the second free was passed on: %v", calls)
				}
				f := b.want(names.FindingDoubleFree)[0]
				if f.Victim.ID != block.ID || !errors.Is(f.Err, core.ErrUseAfterFree) || !strings.Contains(f.Text, "TestDoubleFree") {
					t.Errorf("finding %+v", f)
				}
				wantStack(t, "allocation", f.AllocStack, "TestDoubleFree")
				wantStack(t, "free", f.FreeStack, "TestDoubleFree")
			}
			if mode == debugguard.Hunt {
				refused(core.Quarantined)
			} else {
				refused(core.Retired)
			}
			b.drain()
			refused(core.Freed)
			b.empty()
		})
	}
}

func TestForeignFree(t *testing.T) {
	b := newBench(t, debugguard.Ledger)
	invented := core.BlockID{Ptr: 0x10000, Generation: core.NextGeneration()}
	expect.ErrorOf(b.guard.Deallocate(ctx, invented))(t, core.ErrUseAfterFree, "invented block")
	b.want(names.FindingForeignFree)

	block := b.alloc(64)
	elsewhere := block.ID
	elsewhere.Ordinal = 3
	expect.ErrorOf(b.guard.Deallocate(ctx, elsewhere))(t, core.ErrStreamMisuse, "another device's block")
	b.want(names.FindingForeignFree)
	b.free(block)
	b.empty()
	b.want()
}

func TestStaleHandle(t *testing.T) {
	for _, mode := range []debugguard.Mode{debugguard.Ledger, debugguard.Hunt} {
		t.Run(mode.String(), func(t *testing.T) {
			b := newBench(t, mode)
			old := b.alloc(512)
			b.free(old)
			b.drain()
			recycled := b.alloc(512)
			stale := old.ID
			stale.Ptr = recycled.ID.Ptr // the address came again, the generation did not
			for _, id := range []core.BlockID{old.ID, stale} {
				_, err := b.guard.PrepareUse(ctx, core.UseRequest{Stream: 1, Uses: []core.Use{
					{Block: recycled.ID, Access: core.Read}, {Block: id, Access: core.Write}}})
				if !errors.Is(err, core.ErrUseAfterFree) {
					t.Errorf("prepare of %v: %v", id, err)
				}
				if err := b.guard.RecordUse(ctx, id, 1); !errors.Is(err, core.ErrUseAfterFree) {
					t.Errorf("record of %v: %v", id, err)
				}
				for _, f := range b.want(names.FindingStaleHandle, names.FindingStaleHandle) {
					if f.Victim.ID != old.ID {
						t.Errorf("victim %v", f.Victim.ID)
					}
				}
			}
			b.free(recycled)
			b.empty()
			b.want()
		})
	}
}

func TestPointerOutsideTheBlockIsRefused(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	block := b.alloc(100)
	for _, ptr := range []uint64{block.ID.Ptr - 1, block.ID.Ptr + 100} {
		wild := block.ID
		wild.Ptr = ptr
		if _, err := b.guard.Deallocate(ctx, wild); !errors.Is(err, core.ErrStreamMisuse) {
			t.Errorf("free of %#x: %v", ptr, err)
		}
		if err := b.guard.RecordUse(ctx, wild, 1); !errors.Is(err, core.ErrStreamMisuse) {
			t.Errorf("use of %#x: %v", ptr, err)
		}
		b.want(names.FindingStaleHandle, names.FindingStaleHandle)
	}
	view := block.ID
	view.Ptr += 99
	b.launch("view", 1, func() {}, core.Block{ID: view})
	b.free(block)
	b.empty()
	b.want()
}

func TestLastUsesAreKept(t *testing.T) {
	b := newBench(t, debugguard.Ledger)
	block := b.alloc(64)
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		b.launch(name, 1, func() {}, block, block)
	}
	aborted := b.prepare("aborted", 1, block)
	must.Do(t, b.guard.AbortUse(ctx, aborted))
	must.Do(t, b.guard.RecordUse(ctx, block.ID, 9))
	b.free(block)
	_, _ = b.guard.Deallocate(ctx, block.ID)
	f := b.want(names.FindingDoubleFree)[0]
	var names []string
	for _, u := range f.Uses {
		names = append(names, u.Launch)
	}
	if got := strings.Join(names, ","); got != ",f,e,d" || f.OlderUses != 3 || f.Uses[0].Stream != 9 {
		t.Errorf("uses %q, %d older", got, f.OlderUses)
	}
	b.empty()
}

func TestSpansOfUsesAreKept(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	block := b.alloc(64)
	span := core.SpanRef{TraceID: [16]byte{1}, SpanID: [8]byte{2}}
	ticket := b.prepare("traced", 1, block)
	ticket.Intent().Uses[0].Span = span
	b.mem.poke(block.ID.Ptr+64, 1)
	b.finish(ticket)
	b.free(block)
	b.drain()
	f := b.want(names.FindingOutOfBoundsWrite)[0]
	if f.Uses[0].Span != span || f.Suspects[0].Span != span {
		t.Errorf("use %+v, suspect %+v", f.Uses[0], f.Suspects[0])
	}
}

// Who reads a finding knows the suspects by what they worked on.
func TestASuspectNamesTheTagsOfItsBlocks(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	victim := b.alloc(100)
	var others []core.Block
	for _, tag := range []core.Tag{"a", "b", "a", "c", "d", "e"} {
		other := must.Get(b.guard.Allocate(ctx, core.Request{Bytes: 64, Stream: 1, Tag: tag}))(t)
		others = append(others, other)
	}
	b.launch("culprit", 1, func() { b.mem.poke(victim.ID.Ptr+100, 1) }, others...)
	b.free(victim)
	b.drain()
	f := b.want(names.FindingOutOfBoundsWrite)[0]
	if len(f.Suspects) != 1 || f.Suspects[0].Tags != [4]core.Tag{"a", "b", "c", "d"} {
		t.Errorf("suspects %+v", f.Suspects)
	}
	for _, other := range others {
		b.free(other)
	}
	b.empty()
}
