package cuda

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/ownwork"
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
	return m.fenced(ctx, t, []operand{{dst.Tracking(), core.Write}}, func(h driver.Stream) error {
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
	t := transfer{name: "copy.to_host", direction: "to_host", bytes: uint64(len(dst)) * elementBytes[T](), stream: stream, ownWork: ownwork.ReadsOnly,
		host: unsafe.Pointer(unsafe.SliceData(dst))}
	return m.fenced(ctx, t, []operand{{src.Tracking(), core.Read}}, func(h driver.Stream) error {
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
	return m.fenced(ctx, t, []operand{{dst.Tracking(), core.Write}, {src.Tracking(), core.Read}}, func(h driver.Stream) error {
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
	return m.fenced(ctx, transfer{name: "memset", stream: stream}, []operand{{dst.Tracking(), core.Write}}, func(h driver.Stream) error {
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

// operand is one block of a copy.
type operand struct {
	tracking core.Tracking
	access   core.Access
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
func (m *MemoryManager) fenced(ctx context.Context, t transfer, blocks []operand, enqueue func(driver.Stream) error) error {
	if err := needPool(t.name, m.streams); err != nil {
		return err
	}
	s, err := m.streams.table.resolve(t.name, t.stream)
	if err != nil {
		return err
	}
	run := func(ctx context.Context) error { return m.enqueue(ctx, s, t, enqueue) }
	if m.runtime == nil { // no launch keeps captures out
		if _, err := m.streams.table.enterUncaptured(t.name, t.stream); err != nil {
			return err
		}
		defer s.Leave()
		return run(ctx)
	}
	var uses []core.Use
	for _, b := range blocks {
		if b.tracking.Kind == core.TrackedBlock {
			uses = append(uses, core.Use{Block: b.tracking.Block, Access: b.access})
		}
	}
	return m.runtime.LaunchWith(ctx, core.UseRequest{Stream: t.stream, Launch: t.name, Uses: uses, OwnWork: t.ownWork}, run)
}

// enqueue gives the driver the work, and pins the host's memory. ctx is the
// launch's.
func (m *MemoryManager) enqueue(ctx context.Context, s *stream, t transfer, enqueue func(driver.Stream) error) error {
	end := untraced
	if t.direction != "" {
		end = m.streams.step(ctx, core.Step{Stream: t.stream, Direction: t.direction, Bytes: t.bytes})
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
