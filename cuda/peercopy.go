package cuda

import (
	"context"
	"errors"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/fence"
)

// CopyFromPeer enqueues on dstStream, a stream of dst's device, a copy of src,
// which is on another device, to the start of dst. Each end is prepared in its
// own runtime, as a write of dst on dstStream and a read of src on srcStream,
// a stream of src's device; the streams wait for each other around the copy.
// So later work of either runtime is fenced against it like any launch.
//
// It returns at once, unless a conflicting launch is announced on either block
// (it then waits for that until ctx ends) or the driver fails after the copy
// was enqueued (it then waits for dstStream). Errors are those of
// [core.Runtime.Launch], [core.InvalidRequestError] if dst is too short, and
// [core.StreamMisuseError] for two slices of one device: use [CopyOnDevice].
// Memory without a block is not fenced, as under a permissive recorder.
func CopyFromPeer[T Element](ctx context.Context, dst *Slice[T], dstStream core.StreamID, src *Slice[T], srcStream core.StreamID) error {
	if err := needSlices("CopyFromPeer", dst, src); err != nil {
		return err
	}
	if err := fits("CopyFromPeer", src.n, dst.n); err != nil || src.n == 0 {
		return err
	}
	to, err := newPeerEnd(dst.memory, core.Write, dstStream)
	if err != nil {
		return err
	}
	from, err := newPeerEnd(src.memory, core.Read, srcStream)
	if err != nil {
		return err
	}
	if driver.Unwrap(to.drv) == driver.Unwrap(from.drv) {
		return &core.StreamMisuseError{Op: "CopyFromPeer", Block: to.block, Stream: dstStream, Reason: "both slices are on one device: use CopyOnDevice"}
	}
	c := peerCopy{to: to, from: from, dst: dst.Ptr(), src: src.Ptr(), bytes: src.Bytes()}
	return c.run(ctx)
}

// peerCopy is a copy between two runtimes. None of them knows the other's
// clocks, so the order across is made of two waits that only the driver sees:
//
//	srcStream  prepare(read) ── event ┐               ┌ wait ── finish
//	dstStream  prepare(write)         └ wait ── copy ── event ── finish
//
// What srcStream's finish records is behind the second wait, so the source's
// runtime fences the copy by fencing its own stream.
type peerCopy struct {
	to, from        *peerEnd
	dst, src, bytes uint64
}

// run opens both intents, the block that was allocated first before the other:
// while one is open the other may have to be waited for, and two copies that
// cross must not wait for each other. Generations are unique in the process.
func (c *peerCopy) run(ctx context.Context) error {
	first, second := c.from, c.to
	if second.block.Generation < first.block.Generation {
		first, second = second, first
	}
	during, err := first.prepare(ctx)
	if err != nil {
		return err
	}
	if during, err = second.prepare(during); err != nil {
		return errors.Join(err, first.end(ctx, false))
	}
	span := c.to.streams.begin(during, core.Step{Kind: core.StepCopy, Stream: c.to.lease, Direction: core.FromPeer, Bytes: c.bytes})
	launched, err := c.enqueue()
	endStep(span, err)
	return errors.Join(err, second.end(ctx, launched), first.end(ctx, launched))
}

// enqueue reports whether the copy may have been enqueued. An error before it
// leaves at most a wait behind, which orders more than was asked.
func (c *peerCopy) enqueue() (launched bool, err error) {
	if err := c.to.waitFor(c.from); err != nil {
		return false, err
	}
	err = c.to.observed(c.to.drv.CopyFromPeerAsync(c.dst, c.from.drv, c.src, c.bytes, c.to.stream.Handle()))
	if err == nil {
		err = c.from.waitFor(c.to)
	} else if !errors.Is(err, core.ErrSticky) {
		return false, err
	}
	if err == nil {
		return true, nil
	}
	return true, c.fenceSourceBySync(err)
}

// fenceSourceBySync orders the source after a copy that its stream could not be
// made to wait for, by the strongest means left: the host waits for the copy. If
// that fails too the copy may read the source for nobody knows how long, so the
// block is poisoned.
func (c *peerCopy) fenceSourceBySync(cause error) error {
	err := c.to.observed(c.to.drv.StreamSynchronize(c.to.stream.Handle()))
	if err == nil {
		return fence.Detail(cause, "the copy was fenced by synchronising the destination's stream")
	}
	c.from.poison()
	return errors.Join(fence.Detail(cause, "the copy could not be fenced: its source is poisoned and can be neither used nor reused until the device is reset"), err)
}
