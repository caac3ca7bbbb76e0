package cuda_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// unordered lists the accesses that one on the lease would race with, as
// "launch name (access)", "ready" for the allocation.
func (b *bench) unordered(block core.Block, on *cuda.Lease, kind core.Access) string {
	b.Helper()
	racing, known := b.Runtime.Resource().Inspect().Unordered(block.ID, on.ID(), kind)
	if !known {
		b.Fatal("the backend does not follow what is ordered")
	}
	var list []string
	for _, u := range racing {
		name := u.Launch
		if u.LaunchID == 0 {
			name = "ready"
		}
		list = append(list, fmt.Sprintf("%s on %v (%v)", name, u.Stream, u.Access))
	}
	return fmt.Sprint(list)
}

func TestUnorderedNamesWhatNothingOrders(t *testing.T) {
	b := newBench(t)
	s := b.leases(3)
	block := b.alloc(s[0], 256)
	none, ready := "[]", fmt.Sprintf("[ready on %v (write)]", s[0].ID())
	write, read := fmt.Sprintf("mix on %v (write)", s[0].ID()), fmt.Sprintf("mix on %v (read)", s[1].ID())
	equal(t, "a fresh block on its own stream", b.unordered(block, s[0], core.ReadWrite), none)
	equal(t, "a fresh block on another stream", b.unordered(block, s[1], core.Read), ready)

	b.launch(s[0], writes(block))
	equal(t, "a read after a write elsewhere", b.unordered(block, s[1], core.Read), fmt.Sprintf("[ready on %v (write) %s]", s[0].ID(), write))
	b.launch(s[1], reads(block))
	equal(t, "a read that follows one that waited", b.unordered(block, s[1], core.Read), none)
	equal(t, "a write on a third stream", b.unordered(block, s[2], core.Write), fmt.Sprintf("[%s %s]", write, read))
	equal(t, "a read on a third stream", b.unordered(block, s[2], core.Read), "["+write+"]")
	b.launch(s[2], readWrites(block))
	equal(t, "a write that follows one that waited", b.unordered(block, s[2], core.Write), none)
	b.free(block)
	equal(t, "a freed block", b.unordered(block, s[2], core.Write), none)
}

func TestUnorderedCountsAnOpenLaunchAndNoWithdrawnOne(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	b.launch(s[0], writes(block))
	b.launch(s[1], writes(block))
	open := b.prepare(s[1], reads(block))
	equal(t, "beside an open launch of the own stream", b.unordered(block, s[1], core.Write), "[]")
	equal(t, "a read beside an open read", b.unordered(block, s[0], core.Read), fmt.Sprintf("[mix on %v (write)]", s[1].ID()))
	equal(t, "a write beside an open read", b.unordered(block, s[0], core.Write),
		fmt.Sprintf("[mix on %v (write) mix on %v (read)]", s[1].ID(), s[1].ID()))
	must(t, b.Runtime.AbortUse(ctx, open))
	equal(t, "a write after the launch was withdrawn", b.unordered(block, s[0], core.Write), fmt.Sprintf("[mix on %v (write)]", s[1].ID()))
	b.free(block)
}

func TestUnorderedBelievesWhatTheHostHasSeen(t *testing.T) {
	b := newBench(t)
	s := b.leases(2)
	block := b.alloc(s[0], 256)
	b.launch(s[0], writes(block))
	b.sync(s[0])
	equal(t, "after the host waited for the stream", b.unordered(block, s[1], core.Write), "[]")
	b.free(block)
}

func TestUnorderedIsNilForWhatIsNotKnown(t *testing.T) {
	b := newBench(t)
	s := b.leases(1)
	block := b.alloc(s[0], 256)
	invented := block.ID
	invented.Generation = core.NextGeneration()
	for id, stream := range map[core.BlockID]core.StreamID{invented: s[0].ID(), block.ID: 1 << 40} {
		if racing, known := b.Async.Inspect().Unordered(id, stream, core.Write); racing != nil || !known {
			t.Errorf("an answer about a block or stream that does not exist: %v, %v", racing, known)
		}
	}
	b.free(block)
}

// pointerSpy is a resource that notes the pointers of each launch.
type pointerSpy struct {
	core.Resource
	seen []uint64
}

func TestAKernelNamesItsPointersToTheRuntime(t *testing.T) {
	b := newBench(t)
	s := b.leases(1)
	block := b.alloc(s[0], 256)
	spy := &pointerSpy{Resource: b.Runtime.Resource()}
	rt, err := core.NewRuntime(spy, nil)
	must(t, err)
	uses := writes(block)
	must(t, b.kernel.Launch(ctx, rt, s[0], grid, declared(uses), mixArgs(1, uses)...))
	if len(spy.seen) != 1 || spy.seen[0] != block.ID.Ptr {
		t.Errorf("the launch named pointers %#x, want %#x alone: numbers are no pointers", spy.seen, block.ID.Ptr)
	}
	if a := driver.U64(block.ID.Ptr); a.Pointer {
		t.Error("a number counts as a pointer")
	}
	b.free(block)
}

func (p *pointerSpy) PrepareUse(c context.Context, req core.UseRequest) (core.Ticket, error) {
	p.seen = append(p.seen, req.Pointers...)
	return p.Resource.PrepareUse(c, req)
}
