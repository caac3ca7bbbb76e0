package cuda

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/core"
)

// freedError is the error of an operation on a slice or view that was freed. It
// names the block, where there is one.
func (s *memory) freedError(op, advice string) error {
	if s.kind != core.TrackedBlock {
		return fmt.Errorf("%s: the slice or view tagged %q was freed before; %s: %w", op, s.block.Tag.OrUntagged(), advice, core.ErrUseAfterFree)
	}
	return fmt.Errorf("%w: the slice or view was freed before; %s", &core.UseAfterFreeError{Op: op, Generation: s.block.ID.Generation, Block: s.block.ID,
		State: s.manager.runtime.State(s.block.ID), Tag: s.block.Tag}, advice)
}

// freedTwice reports that a slice or view is freed again by the caller of the
// caller, and returns the error for it. What has no block is an error only.
func (s *memory) freedTwice() error {
	err := s.freedError("Slice.Free", "nothing is freed twice: free it in one place, by an explicit call or by a deferred one")
	if s.kind == core.TrackedBlock {
		victim := s.block
		victim.State = s.manager.runtime.State(victim.ID)
		s.manager.runtime.ReportDoubleFree(victim,
			fmt.Sprintf("a slice of generation %s tagged %q was freed again; nothing was freed twice", victim.ID.Generation, victim.Tag), err, core.CaptureStack(2))
	}
	return err
}

// hostFreedTwice is freedTwice of page-locked memory, which has no block.
func hostFreedTwice(rt *core.Runtime, bytes uint64) error {
	err := fmt.Errorf("HostBuffer.Free: the buffer of %d bytes was freed before, or is being freed; free it in one place: %w", bytes, core.ErrUseAfterFree)
	if rt != nil && bytes > 0 {
		rt.ReportDoubleFree(core.Block{Requested: bytes, Bytes: bytes}, fmt.Sprintf("a host buffer of %d bytes was freed again; nothing was freed twice", bytes), err, core.CaptureStack(2))
	}
	return err
}
