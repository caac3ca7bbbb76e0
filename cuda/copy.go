package cuda

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/fence"
	"github.com/fencepost-gpu/fencepost/internal/launchkind"
)

// CopyToDevice enqueues on stream a copy of src to the start of dst, fenced
// like any launch. It returns at once: src must not be changed until the
// stream is done (see [StreamPool.Synchronize]). The runtime keeps it
// reachable and in place until then.
func CopyToDevice[T Element](ctx context.Context, dst *Slice[T], stream core.StreamID, src []T) error {
	if err := needSlice("CopyToDevice", "dst", dst); err != nil {
		return err
	}
	if err := fits("CopyToDevice", len(src), dst.n); err != nil || len(src) == 0 {
		return err
	}
	m := dst.storage.manager
	t := transfer{name: "copy.to_device", direction: "to_device", bytes: uint64(len(src)) * elementBytes[T](), stream: stream,
		host: unsafe.Pointer(unsafe.SliceData(src))}
	return m.fenced(ctx, t, []core.Use{dst.Use(core.Write)}, func(h driver.Stream) error {
		return m.drv.CopyToDeviceAsync(dst.Ptr(), asBytes(src), h)
	})
}

// CopyToHost enqueues on stream a copy of the first len(dst) values of src,
// fenced like any launch. It returns at once: dst holds them when the stream
// is done. The runtime keeps dst reachable and in place until then.
func CopyToHost[T Element](ctx context.Context, dst []T, src *Slice[T], stream core.StreamID) error {
	if err := needSlice("CopyToHost", "src", src); err != nil {
		return err
	}
	if err := fits("CopyToHost", len(dst), src.n); err != nil || len(dst) == 0 {
		return err
	}
	m := src.storage.manager
	t := transfer{name: "copy.to_host", direction: "to_host", bytes: uint64(len(dst)) * elementBytes[T](), stream: stream, ownWork: launchkind.ReadsOnly,
		host: unsafe.Pointer(unsafe.SliceData(dst))}
	return m.fenced(ctx, t, []core.Use{src.Use(core.Read)}, func(h driver.Stream) error {
		return m.drv.CopyToHostAsync(asBytes(dst), src.Ptr(), h)
	})
}

// CopyOnDevice enqueues on stream a copy of src to the start of dst, fenced
// like any launch. Both must belong to one manager.
func CopyOnDevice[T Element](ctx context.Context, dst, src *Slice[T], stream core.StreamID) error {
	if err := needSlices("CopyOnDevice", dst, src); err != nil {
		return err
	}
	if dst.storage.manager != src.storage.manager {
		return &core.StreamMisuseError{Op: "CopyOnDevice", Stream: stream, Reason: "the slices belong to two managers: use CopyFromPeer between devices, and slices of one manager on one"}
	}
	if err := fits("CopyOnDevice", src.n, dst.n); err != nil || src.n == 0 {
		return err
	}
	m := dst.storage.manager
	t := transfer{name: "copy.on_device", direction: "on_device", bytes: src.Bytes(), stream: stream}
	return m.fenced(ctx, t, []core.Use{dst.Use(core.Write), src.Use(core.Read)}, func(h driver.Stream) error {
		return m.drv.CopyOnDeviceAsync(dst.Ptr(), src.Ptr(), src.Bytes(), h)
	})
}

// Memset enqueues on stream the setting of every byte of dst to value, fenced
// like any launch.
func Memset[T Element](ctx context.Context, dst *Slice[T], stream core.StreamID, value byte) error {
	if err := needSlice("Memset", "dst", dst); err != nil {
		return err
	}
	if dst.n == 0 {
		return nil
	}
	m := dst.storage.manager
	return m.fenced(ctx, transfer{name: "memset", stream: stream}, []core.Use{dst.Use(core.Write)}, func(h driver.Stream) error {
		return m.drv.MemsetAsync(dst.Ptr(), value, dst.Bytes(), h)
	})
}

// Download copies all of src to the host and waits for it, until ctx ends.
func Download[T Element](ctx context.Context, src *Slice[T], stream core.StreamID) ([]T, error) {
	if err := needSlice("Download", "src", src); err != nil {
		return nil, err
	}
	out := make([]T, src.n)
	if err := CopyToHost(ctx, out, src, stream); err != nil {
		return nil, err
	}
	return out, src.storage.manager.streams.Synchronize(ctx, stream)
}

func fits(op string, n, room int) error {
	if n > room {
		return &core.InvalidRequestError{Op: op, Field: "length", Reason: fmt.Sprintf("%d values do not fit %d", n, room)}
	}
	return nil
}

func asBytes[T Element](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(s[0]))
}

// transfer is a copy, or a memset, which has no direction.
type transfer struct {
	name      string
	direction string
	bytes     uint64
	stream    core.StreamID
	ownWork   any // see [core.UseRequest]
	// host, if not nil, is pinned until the work is completed.
	host unsafe.Pointer
}

// fenced runs enqueue between the two halves of the launch protocol. Memory
// without a block is not fenced, as under a permissive recorder. The blocks are no
// part of t, which escapes.
func (m *MemoryManager) fenced(ctx context.Context, t transfer, uses []core.Use, enqueue func(driver.Stream) error) error {
	if err := needPool(t.name, m.streams); err != nil {
		return err
	}
	s, err := m.streams.table.resolve(t.name, t.stream)
	if err != nil {
		return fmt.Errorf("%w; a slice can be used only on the streams of the runtime that it belongs to", err)
	}
	run := func(ctx context.Context) error { return m.enqueue(ctx, s, t, enqueue) }
	if m.runtime == nil { // no launch keeps captures out
		if _, err := m.streams.table.enterUncaptured(t.name, t.stream); err != nil {
			return err
		}
		defer s.Leave()
		return run(ctx)
	}
	return m.runtime.LaunchWith(ctx, core.UseRequest{Stream: t.stream, Launch: t.name, Uses: uses, OwnWork: t.ownWork}, run)
}

// enqueue gives the driver the work, and pins the host's memory. ctx is the
// launch's.
func (m *MemoryManager) enqueue(ctx context.Context, s *stream, t transfer, enqueue func(driver.Stream) error) error {
	end := untraced
	if t.direction != "" {
		end = m.streams.step(ctx, oplog.Step{Stream: t.stream, Direction: t.direction, Bytes: t.bytes})
	}
	err := enqueue(s.Handle())
	end(err)
	if err != nil {
		return refusedUnlessSticky(err)
	}
	if t.host == nil {
		return nil
	}
	if err = s.pinHost(t.host, t.stream); err != nil {
		m.streams.table.lostHosts.add(t.host)
	}
	return err
}

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
	to, err := newPeerEnd(dst.storage, core.Write, dstStream)
	if err != nil {
		return err
	}
	from, err := newPeerEnd(src.storage, core.Read, srcStream)
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
	end := c.to.streams.step(during, oplog.Step{Stream: c.to.lease, Direction: "from_peer", Bytes: c.bytes})
	launched, err := c.enqueue()
	end(err)
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
// that fails too the copy may read the source for an unknown time, so the block is
// poisoned.
func (c *peerCopy) fenceSourceBySync(cause error) error {
	err := c.to.observed(c.to.drv.StreamSynchronize(c.to.stream.Handle()))
	if err == nil {
		return fence.Detail(cause, "the copy was fenced by synchronising the destination's stream")
	}
	c.from.poison()
	return errors.Join(fence.Detail(cause, "the copy could not be fenced: its source is poisoned and can be neither used nor reused until the device is reset"), err)
}

// peerEnd is one end of a copy between devices, with what belongs to it alone:
// a runtime hears only of its own driver's errors, because a lost device must
// not take its peer's runtime along.
type peerEnd struct {
	drv     driver.Driver
	runtime *core.Runtime // nil if the memory is not fenced
	streams *StreamPool
	table   *streamTable
	stream  *stream
	lease   core.StreamID
	block   core.BlockID
	access  core.Access
	ticket  core.Ticket
}

func newPeerEnd(of *storage, access core.Access, lease core.StreamID) (*peerEnd, error) {
	m := of.manager
	if err := needPool("CopyFromPeer", m.streams); err != nil {
		return nil, err
	}
	s, err := m.streams.table.resolve("CopyFromPeer", lease)
	if err != nil {
		return nil, err
	}
	e := &peerEnd{drv: m.drv, streams: m.streams, table: m.streams.table, stream: s, lease: lease, block: of.block.ID, access: access}
	if of.hasBlock() {
		e.runtime = m.runtime
	}
	return e, nil
}

// prepare opens the intent and returns the context of its launch. Without a
// runtime it only keeps captures out.
func (e *peerEnd) prepare(ctx context.Context) (context.Context, error) {
	if e.runtime == nil {
		_, err := e.table.enterUncaptured("CopyFromPeer", e.lease)
		return ctx, err
	}
	req := core.UseRequest{Stream: e.lease, Launch: "copy.from_peer", Uses: []core.Use{{Block: e.block, Access: e.access}}, Wait: true}
	if !e.access.Writes() {
		req.OwnWork = launchkind.ReadsOnly
	}
	t, err := e.runtime.PrepareUse(ctx, req)
	if err != nil {
		return nil, err
	}
	e.ticket = t
	if e.access == core.Read {
		if err := e.exclude(ctx); err != nil {
			return nil, errors.Join(err, e.end(ctx, false))
		}
	}
	return t.Context(ctx), nil
}

// exclude makes the intent of a source conflict with launches on its own
// stream too, and waits for those that are announced there: the copy is not
// enqueued on that stream, which therefore orders nothing until it has been
// made to wait. Who is waited for has its intent and does not wait in turn.
func (e *peerEnd) exclude(ctx context.Context) error {
	for {
		closed := e.tryExclude()
		if closed == nil {
			return nil
		}
		select {
		case <-closed:
		case <-ctx.Done():
			return fmt.Errorf("CopyFromPeer gave up waiting for a launch on block %v: %w", e.block, ctx.Err())
		}
	}
}

// tryExclude returns nil, or a channel that is closed when one of the launches
// in the way has ended.
func (e *peerEnd) tryExclude() <-chan struct{} {
	b := e.table.lookup(e.block)
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.history.Exclude(e.ticket.Intent().ID, e.access)
}

// end closes the intent.
func (e *peerEnd) end(ctx context.Context, launched bool) error {
	switch {
	case e.runtime == nil:
		e.stream.Leave()
		return nil
	case launched:
		return e.runtime.FinishUse(ctx, e.ticket)
	}
	return e.runtime.AbortUse(ctx, e.ticket)
}

// waitFor makes later work of e's stream wait for what is enqueued on peer's.
// The event goes back to its stream at once: recording it again moves no wait.
func (e *peerEnd) waitFor(peer *peerEnd) error {
	peer.stream.Lock()
	p, err := peer.stream.Record(peer.lease)
	peer.stream.Unlock()
	if err != nil {
		return peer.observed(err)
	}
	defer p.Release()
	return e.observed(e.stream.WaitPeer(peer.drv, p))
}

// observed tells the end's runtime of its driver's error and returns it.
func (e *peerEnd) observed(err error) error {
	if err != nil && e.runtime != nil {
		e.runtime.ReportSticky("CopyFromPeer", err)
	}
	return err
}

// poison takes the block out of use. Its intent is open, so the record is its
// own.
func (e *peerEnd) poison() {
	if e.runtime == nil {
		return
	}
	if b := e.table.lookup(e.block); b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		e.table.poison(b)
	}
}
