package debugguard_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/monotime"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// strict makes the guard refuse what it can.
func strict(c *debugguard.Config) { c.Advanced.Refuse = true }

// try prepares and finishes a launch, and returns the refusal if there is one.
func (b *bench) try(req core.UseRequest) error {
	b.Helper()
	t, err := b.guard.PrepareUse(ctx, req)
	if err == nil {
		b.finish(t)
	}
	return err
}

func using(access core.Access, blocks ...core.Block) (uses []core.Use) {
	for _, block := range blocks {
		uses = append(uses, core.Use{Block: block.ID, Access: access})
	}
	return uses
}

func (b *bench) reads(name string, blocks ...core.Block) error {
	b.Helper()
	return b.try(core.UseRequest{Stream: 1, Launch: name, Uses: using(core.Read, blocks...)})
}

func (b *bench) writes(name string, blocks ...core.Block) {
	b.Helper()
	must.Do(b, b.try(core.UseRequest{Stream: 1, Launch: name, Uses: using(core.Write, blocks...)}))
}

func TestAReadBeforeAnyWriteIsFoundOnce(t *testing.T) {
	b := newBench(t, debugguard.Ledger)
	block := b.alloc(64)
	for range 3 {
		must.Do(t, b.reads("sum", block))
	}
	f := b.want(names.FindingUninitializedRead)[0]
	if f.Victim.ID != block.ID || len(f.Suspects) != 1 || f.Suspects[0].Launch != "sum" || f.Suspects[0].Access != core.Read || !errors.Is(f.Err, core.ErrStreamMisuse) {
		t.Errorf("finding %+v", f)
	}
	if len(f.Uses) != 1 || f.Uses[0].Launch != "sum" || f.Uses[0].Time.IsZero() || !strings.Contains(f.Text, "declared_test.go") {
		t.Errorf("uses %+v, text %q", f.Uses, f.Text)
	}
	b.free(block)
	b.empty()
}

func TestAReadOfWhatWasWrittenIsNoFinding(t *testing.T) {
	for name, write := range map[string]func(*bench, core.Block){
		"write":      func(b *bench, block core.Block) { b.writes("fill", block) },
		"read-write": func(b *bench, block core.Block) { b.launch("update", 1, func() {}, block) },
		"recorded use": func(b *bench, block core.Block) {
			must.Do(b, b.guard.RecordUse(ctx, block.ID, 1))
		},
		"read and write in one launch": func(b *bench, block core.Block) {
			uses := append(using(core.Read, block), using(core.Write, block)...)
			must.Do(b, b.try(core.UseRequest{Stream: 1, Uses: uses}))
		},
		"one write of many aborted": func(b *bench, block core.Block) {
			first := b.prepare("first", 1, block)
			b.writes("second", block)
			must.Do(b, b.guard.AbortUse(ctx, first))
		},
		"write while the guard was off": func(b *bench, block core.Block) {
			b.mode(debugguard.Off)
			b.writes("fill", block)
			b.mode(debugguard.Ledger)
		},
	} {
		for _, mode := range []debugguard.Mode{debugguard.Ledger, debugguard.Hunt} {
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				b := newBench(t, mode, strict)
				block := b.alloc(64)
				write(b, block)
				expect.Success(t, b.reads("sum", block))
				b.free(block)
				b.empty()
				b.want()
			})
		}
	}
}

func TestAnAbortedWriteWritesNothing(t *testing.T) {
	b := newBench(t, debugguard.Ledger)
	block := b.alloc(64)
	must.Do(t, b.guard.AbortUse(ctx, b.prepare("fill", 1, block)))
	must.Do(t, b.reads("sum", block))
	b.want(names.FindingUninitializedRead)
	b.free(block)
}

func TestWhatWasAllocatedUnobservedIsNeverAccused(t *testing.T) {
	b := newBench(t, debugguard.Off)
	unknown := b.alloc(64)
	b.mode(debugguard.Ledger)
	known := b.alloc(64)
	b.writes("fill", known)
	expect.Success(t, b.reads("sum", unknown))
	pointers := []uint64{unknown.ID.Ptr, unknown.ID.Ptr + 8}
	expect.Success(t, b.try(core.UseRequest{Stream: 1, Uses: using(core.Read, known), Pointers: pointers}))
	b.free(unknown)
	b.free(known)
	b.empty()
	b.want()
}

func TestRefuseKeepsAReadBeforeAnyWriteFromThePrepare(t *testing.T) {
	b := newBench(t, debugguard.Ledger, strict)
	block := b.alloc(64)
	b.fake.Calls()
	for range 2 {
		if err := b.reads("sum", block); !errors.Is(err, core.ErrStreamMisuse) {
			t.Errorf("the read was answered with %v", err)
		}
	}
	if calls := b.fake.Calls(); len(calls) != 0 {
		t.Errorf("the upstream was asked: %v", calls)
	}
	b.want(names.FindingUninitializedRead, names.FindingUninitializedRead)
	b.writes("fill", block)
	expect.Success(t, b.reads("sum", block))
	b.free(block)
	b.empty()
	b.want()
}

func TestAPointerIntoAnUndeclaredBlockIsFound(t *testing.T) {
	for _, inside := range []uint64{0, 100, 255} {
		b := newBench(t, debugguard.Ledger)
		declared, forgotten := b.alloc(64), b.alloc(256)
		req := core.UseRequest{Stream: 1, Launch: "join", Uses: using(core.Write, declared), Pointers: []uint64{declared.ID.Ptr, forgotten.ID.Ptr + inside}}
		for range 3 { // once for the launch's name
			must.Do(t, b.try(req))
		}
		f := b.want(names.FindingUndeclaredAccess)[0]
		if f.Victim.ID != forgotten.ID || len(f.Suspects) != 1 || f.Suspects[0].Launch != "join" || !errors.Is(f.Err, core.ErrStreamMisuse) {
			t.Errorf("finding %+v", f)
		}
		req.Launch = "sort"
		must.Do(t, b.try(req))
		b.want(names.FindingUndeclaredAccess)
	}
}

func TestPointersThatAreDeclaredOrNobodysAreNoFinding(t *testing.T) {
	b := newBench(t, debugguard.Ledger, strict)
	first, second, freed := b.alloc(64), b.alloc(4096), b.alloc(128)
	b.writes("fill", first, second)
	end := second.ID.Ptr + 4096
	b.free(freed)
	b.drain()
	for name, pointers := range map[string][]uint64{
		"in order":           {first.ID.Ptr, second.ID.Ptr},
		"in another order":   {second.ID.Ptr, first.ID.Ptr, second.ID.Ptr + 17},
		"the end of a block": {first.ID.Ptr + 64, end},
		"null":               {0},
		"nobody's":           {1 << 60},
	} {
		if err := b.try(core.UseRequest{Stream: 1, Launch: name, Uses: using(core.Read, first, second), Pointers: pointers}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.free(first)
	b.free(second)
	b.empty()
	b.want()
}

func TestAPointerIntoAFreedBlockIsFound(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		b := newBench(t, debugguard.Ledger, func(c *debugguard.Config) { c.Advanced.Refuse = refuse })
		declared, freed := b.alloc(64), b.alloc(256)
		b.writes("fill", declared, freed)
		b.free(freed)
		b.drain()
		err := b.try(core.UseRequest{Stream: 1, Launch: "late", Uses: using(core.Read, declared), Pointers: []uint64{freed.ID.Ptr + 8}})
		if refused := errors.Is(err, core.ErrUseAfterFree); refused != refuse {
			t.Errorf("refuse %v: %v", refuse, err)
		}
		f := b.want(names.FindingStaleHandle)[0]
		if f.Victim.ID != freed.ID || len(f.Uses) != 1 || f.Uses[0].Launch != "fill" || !errors.Is(f.Err, core.ErrUseAfterFree) {
			t.Errorf("finding %+v", f)
		}
		b.free(declared)
		b.empty()
	}
}

func TestALateUseOfReusedMemoryNamesOldAndNewOwner(t *testing.T) {
	for _, op := range []string{"PrepareUse", "RecordUse"} {
		t.Run(op, func(t *testing.T) {
			b := newBench(t, debugguard.Ledger)
			b.guard = b.over(reusing(), debugguard.Ledger)
			old := b.alloc(256)
			b.writes("fill", old)
			b.free(old)
			heir := b.alloc(256)
			if heir.ID.Ptr != old.ID.Ptr {
				t.Fatal("the address was not given out again: the test proves nothing")
			}
			var err error
			if op == "PrepareUse" {
				err = b.reads("late", old)
			} else {
				err = b.guard.RecordUse(ctx, old.ID, 1)
			}
			expect.Error(t, err, core.ErrUseAfterFree, "the late use")
			f := b.want(names.FindingReuseRace)[0]
			if f.Victim.ID != old.ID || len(f.Uses) != 1 || f.Uses[0].Launch != "fill" || !strings.Contains(f.Text, heir.ID.Generation.String()) {
				t.Errorf("finding %+v", f)
			}
			b.free(heir)
			b.empty()
		})
	}
}

func TestAPointerThatTheHeirDeclaresIsNoFinding(t *testing.T) {
	b := newBench(t, debugguard.Ledger)
	b.guard = b.over(reusing(), debugguard.Ledger, strict)
	old := b.alloc(256)
	b.free(old)
	heir := b.alloc(256)
	b.writes("fill", heir)
	expect.Success(t, b.try(core.UseRequest{Stream: 1, Uses: using(core.Read, heir), Pointers: []uint64{old.ID.Ptr}}))
	b.free(heir)
	b.empty()
	b.want()
}

func TestAUseThatBypassesTheFencesIsFound(t *testing.T) {
	ready := core.UseRecord{Stream: 1, Access: core.Write}
	write := core.UseRecord{LaunchID: 7, Launch: "fill", Stream: 1, Access: core.Write}
	recorded := core.UseRecord{Stream: 3, Access: core.ReadWrite}
	for name, c := range map[string]struct {
		racing []core.UseRecord
		want   []core.FindingKind
		text   string
	}{
		"ordered":              {nil, nil, ""},
		"a launch":             {[]core.UseRecord{ready, write}, []core.FindingKind{names.FindingMissingFence}, `"fill"`},
		"a recorded use":       {[]core.UseRecord{recorded}, []core.FindingKind{names.FindingMissingFence}, "recorded on stream 3"},
		"the allocation alone": {[]core.UseRecord{ready}, []core.FindingKind{names.FindingUseBeforeAlloc}, "its allocation on stream 1"},
	} {
		for _, refuse := range []bool{false, true} {
			b := newBench(t, debugguard.Off)
			upstream := &ordered{Fake: b.fake, racing: c.racing}
			b.guard = b.over(upstream, debugguard.Ledger, func(c *debugguard.Config) { c.Advanced.Refuse = refuse })
			block := b.alloc(64)
			b.fake.Calls()
			err := b.guard.RecordUse(ctx, block.ID, 2)
			if refused := errors.Is(err, core.ErrStreamMisuse); refused != (refuse && c.want != nil) {
				t.Errorf("%s, refuse %v: %v", name, refuse, err)
			}
			if calls := b.fake.Calls(); len(calls) != 1 || upstream.asked != 1 {
				t.Errorf("%s: the use was not recorded: %v, asked %d times", name, calls, upstream.asked)
			}
			for _, f := range b.want(c.want...) {
				if f.Victim.ID != block.ID || len(f.Suspects) != 1+len(c.racing) || f.Suspects[0].Stream != 2 || !strings.Contains(f.Text, c.text) {
					t.Errorf("%s: finding %+v", name, f)
				}
			}
			b.free(block)
			b.empty()
		}
	}
}

func TestAFreeByAPointerOutsideItsBlockIsRefused(t *testing.T) {
	b := newBench(t, debugguard.Ledger)
	block := b.alloc(100)
	for _, ptr := range []uint64{block.ID.Ptr - 1, block.ID.Ptr + 100} {
		wild := block.ID
		wild.Ptr = ptr
		if _, err := b.guard.Deallocate(ctx, wild); !errors.Is(err, core.ErrStreamMisuse) {
			t.Errorf("free of %#x: %v", ptr, err)
		}
		b.want(names.FindingStaleHandle)
	}
	if s := b.guard.State(block.ID); s != core.Live {
		t.Errorf("the block is %v", s)
	}
	view := block.ID
	view.Ptr += 99
	if _, err := b.guard.Deallocate(ctx, view); err != nil {
		t.Error(err)
	}
	b.empty()
	b.want()
}

func TestBlocksTellWhenTheyWereAllocated(t *testing.T) {
	b := newBench(t, debugguard.Off)
	b.mode(debugguard.Ledger)
	before := monotime.Now().Time()
	block := b.alloc(64)
	after := monotime.Now().Time()
	b.guard.Inspect().Blocks(func(info core.BlockInfo) bool {
		if info.Allocated.Before(before) || info.Allocated.After(after) {
			t.Errorf("allocated at %v, which is not between %v and %v", info.Allocated, before, after)
		}
		return true
	})
	b.free(block)
}

// unleasing is a fake that refuses uses for want of a lease, or in another way.
type unleasing struct {
	*coretest.Fake
	err error
}

func (u *unleasing) PrepareUse(c context.Context, req core.UseRequest) (core.Ticket, error) {
	if u.err != nil {
		return core.Ticket{}, u.err
	}
	return u.Fake.PrepareUse(c, req)
}

func (u *unleasing) RecordUse(c context.Context, id core.BlockID, s core.StreamID) error {
	if u.err != nil {
		return u.err
	}
	return u.Fake.RecordUse(c, id, s)
}

func TestWhatTheUpstreamRefusesIsFoundWhereItIsABug(t *testing.T) {
	b := newBench(t, debugguard.Off)
	upstream := &unleasing{Fake: b.fake}
	b.guard = b.over(upstream, debugguard.Ledger)
	block := b.alloc(64)
	outside := block.ID
	outside.Ptr += 64
	for name, c := range map[string]struct {
		err  error
		want []core.FindingKind
	}{
		"no lease":           {&core.StreamMisuseError{Op: "PrepareUse", Stream: 9, Unleased: true}, []core.FindingKind{names.FindingStaleHandle}},
		"a pointer outside":  {&core.StreamMisuseError{Op: "PrepareUse", Block: outside}, []core.FindingKind{names.FindingStaleHandle}},
		"an open intent":     {&core.StreamMisuseError{Op: "PrepareUse", Block: block.ID, Holder: &core.UseRecord{}}, nil},
		"the driver":         {errDevice, nil},
		"a block of nobody":  {&core.UseAfterFreeError{Block: core.BlockID{Generation: core.NextGeneration()}}, nil},
		"a block that lives": {&core.UseAfterFreeError{Block: block.ID}, nil},
	} {
		upstream.err = c.err
		if err := b.try(core.UseRequest{Stream: 1, Launch: "refused", Uses: using(core.Write, block)}); err == nil || err.Error() == "" {
			t.Errorf("%s: the launch was not refused", name)
		}
		b.want(c.want...)
		if err := b.guard.RecordUse(ctx, block.ID, 1); err == nil {
			t.Errorf("%s: the use was not refused", name)
		}
		b.want(c.want...)
		if s := b.guard.State(block.ID); s != core.Live {
			t.Errorf("%s: the block is %v", name, s)
		}
	}
	upstream.err = nil
	if err := b.reads("sum", block); err != nil { // none of those launches wrote it
		t.Error(err)
	}
	b.want(names.FindingUninitializedRead)
	b.free(block)
	b.empty()
}

func TestAUseThatCouldNotBeRecordedIsStillFound(t *testing.T) {
	b := newBench(t, debugguard.Off)
	upstream := &refusingOrdered{unleasing: unleasing{Fake: b.fake, err: errDevice}}
	b.guard = b.over(upstream, debugguard.Ledger, strict)
	block := b.alloc(64)
	err := b.guard.RecordUse(ctx, block.ID, 2)
	if !errors.Is(err, core.ErrDriver) || !errors.Is(err, core.ErrStreamMisuse) {
		t.Errorf("got %v, want the driver's error and the finding's", err)
	}
	b.want(names.FindingMissingFence)
	b.free(block)
	b.empty()
}

type refusingOrdered struct{ unleasing }

func (r *refusingOrdered) Inspect() core.Inspector {
	return orderer{r.Fake.Inspect(), func() []core.UseRecord { return []core.UseRecord{{LaunchID: 1, Stream: 1, Access: core.Write}} }}
}

// A number need be no address, so what it happens to lie in is suspected, and nothing refused.
func TestANumberThatIsAnAddressOfAnUndeclaredBlockIsSuspected(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		for _, freed := range []bool{false, true} {
			b := newBench(t, debugguard.Ledger, func(c *debugguard.Config) { c.Advanced.Refuse = refuse })
			declared, forgotten := b.alloc(64), b.alloc(256)
			b.writes("fill", declared, forgotten)
			if freed {
				b.free(forgotten)
				b.drain()
			}
			req := core.UseRequest{Stream: 1, Launch: "join", Uses: using(core.Read, declared),
				Words: []uint64{0, 17, declared.ID.Ptr, declared.ID.Ptr + 64, 1 << 60, math.MaxUint64, forgotten.ID.Ptr + 100}}
			for range 3 { // once for the launch's name
				must.Do(t, b.try(req))
			}
			f := b.want(names.FindingUndeclaredAccess)[0]
			if f.Victim.ID != forgotten.ID || !f.Unproven || len(f.Suspects) != 1 || f.Suspects[0].Launch != "join" || strings.Contains(f.Text, "was freed") != freed {
				t.Errorf("refuse %v, freed %v: finding %+v", refuse, freed, f)
			}
			must.Do(t, b.guard.SetMode(ctx, debugguard.Off))
			req.Launch = "off"
			must.Do(t, b.try(req))
			b.want()
		}
	}
}
