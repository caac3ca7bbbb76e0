package runtimes_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

// planted is a program with three blocks side by side, of which one is misused.
type planted struct {
	*testing.T
	rt                 *fencepost.Runtime
	x, y               *cuda.Lease
	left, block, right core.Block
}

// declared does n bytes of a memset at an offset of the block in a launch that
// declares the block and nothing else.
func (p planted) declared(offset, n int64) {
	p.Helper()
	e2e.Succeed(p.T, "the launch", p.rt.LaunchNamed(p.Context(), "guilty", p.x.ID(), []core.Use{{Block: p.block.ID, Access: core.Write}}, func(context.Context) error {
		return p.rt.Driver().MemsetAsync(p.block.ID.Ptr+uint64(offset), 0, uint64(n), p.x.Handle())
	}))
}

// gone frees blocks, and waits until they are gone unless the guard keeps them.
func (p planted) gone(blocks ...core.Block) {
	p.Helper()
	e2e.Free(p.T, p.rt, blocks...)
	e2e.Succeed(p.T, "synchronising", p.rt.Streams().Synchronize(p.Context(), p.x.ID()))
	e2e.Succeed(p.T, "reaping", p.rt.ReapPending(p.Context()))
}

// A bug is one finding about the block that it is of, whoever sees it and
// whatever lies beside the block.
func TestOneBugIsOneFindingAboutTheRightBlock(t *testing.T) {
	for name, bug := range map[string]struct {
		kind core.FindingKind
		do   func(p planted) (victim core.Block)
	}{
		"an overrun into a freed neighbour": {names.FindingOutOfBoundsWrite, func(p planted) core.Block {
			p.gone(p.right)
			p.declared(0, int64(p.right.ID.Ptr-p.block.ID.Ptr)+64)
			return p.block
		}},
		"an overrun into a live neighbour": {names.FindingOutOfBoundsWrite, func(p planted) core.Block {
			p.declared(0, int64(p.right.ID.Ptr-p.block.ID.Ptr)+64)
			return p.block
		}},
		"an overrun by a few bytes": {names.FindingOutOfBoundsWrite, func(p planted) core.Block {
			p.gone(p.right)
			p.declared(0, int64(p.block.Requested)+8)
			return p.block
		}},
		"an underflow into a freed neighbour": {names.FindingUnderflow, func(p planted) core.Block {
			p.gone(p.left)
			p.declared(-16, 32)
			return p.block
		}},
		"a write after the free": {names.FindingUseAfterFreeWrite, func(p planted) core.Block {
			p.gone(p.block)
			e2e.Succeed(p.T, "the write", e2e.Memset(p.Context(), p.rt, p.block.ID.Ptr, p.block.Requested, p.x.Handle()))
			return p.block
		}},
		"a write that waits for nothing": {names.FindingUseBeforeAlloc, func(p planted) core.Block {
			release := e2e.Hold(p.T, p.rt, p.x.Handle())
			block := e2e.Allocate(p.T, p.rt, 4096, p.x.ID(), "fresh")
			e2e.Succeed(p.T, "the write", p.rt.Driver().MemsetAsync(block.ID.Ptr, 0, block.Requested, p.y.Handle()))
			e2e.Succeed(p.T, "synchronising", p.rt.Streams().Synchronize(p.Context(), p.y.ID())) // or it may race with the free too
			e2e.Free(p.T, p.rt, block)
			release()
			return block
		}},
		"a write after the free on another stream": {names.FindingUseAfterFreeWrite, func(p planted) core.Block {
			p.declared(0, 64)
			e2e.Succeed(p.T, "a reader", p.rt.Launch(p.Context(), p.y.ID(), []core.Use{{Block: p.block.ID, Access: core.Read}}, func(context.Context) error { return nil }))
			release := e2e.Hold(p.T, p.rt, p.x.Handle())
			e2e.Free(p.T, p.rt, p.block)
			e2e.Succeed(p.T, "the write", p.rt.Driver().MemsetAsync(p.block.ID.Ptr, 0, p.block.Requested, p.y.Handle()))
			e2e.Succeed(p.T, "flushing", p.rt.Guard().Flush(p.Context()))
			release()
			e2e.Succeed(p.T, "synchronising", p.rt.Streams().Synchronize(p.Context(), p.y.ID()))
			return p.block
		}},
	} {
		for _, guard := range []string{"", "ledger", "off", "sample:1", "hunt", "hunt:bisect"} {
			t.Run(fmt.Sprintf("%s/%s", name, guard), func(t *testing.T) {
				rt := e2e.OpenDirty(t, fencepost.Config{Device: fencepost.Sim, Guard: fencepost.GuardMode(guard), Async: cuda.AsyncConfig{ReapInterval: -1}, Pool: cuda.PoolConfig{ReapInterval: -1}})
				p := planted{T: t, rt: rt, x: e2e.Lease(t, rt, "x"), y: e2e.Lease(t, rt, "y")}
				for i, b := range []*core.Block{&p.left, &p.block, &p.right} {
					*b = e2e.Allocate(t, rt, 4096, p.x.ID(), core.Tag([]string{"left", "block", "right"}[i]))
				}
				victim := bug.do(p)
				for _, b := range []core.Block{p.left, p.block, p.right} {
					if _, err := rt.Deallocate(t.Context(), b.ID); err != nil && !errors.Is(err, core.ErrUseAfterFree) {
						t.Fatal(err)
					}
				}
				e2e.Succeed(t, "draining", rt.Drain(t.Context()))
				e2e.Succeed(t, "releasing", errors.Join(p.x.Release(), p.y.Release()))
				_, err := rt.Close(t.Context())
				e2e.Succeed(t, "closing", err)
				wantOne(t, rt, bug.kind, victim)
			})
		}
	}
}

func wantOne(t *testing.T, rt *fencepost.Runtime, kind core.FindingKind, victim core.Block) {
	t.Helper()
	var found []core.Finding
	for _, f := range rt.Findings().Recent() {
		if f.Kind != names.FindingDoubleFree { // the test's own end frees twice
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d findings, want one: %v", len(found), found)
	}
	f := found[0]
	if f.Kind != kind || f.Victim.ID != victim.ID || f.Victim.Tag != victim.Tag {
		t.Errorf("found %v, want %s of %q", f, kind, victim.Tag)
	}
	if strings.Contains(f.Text, "fencepost_") || strings.Contains(f.String(), "stream 0x") {
		t.Errorf("it names the guard's kernels, or a stream by its handle: %v", f)
	}
}
