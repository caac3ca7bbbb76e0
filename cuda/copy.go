package cuda

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
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
	m := dst.memory.manager
	return m.fenced(ctx, "copy.to_device", stream, []operand{{dst.Tracking(), core.Write}}, unsafe.Pointer(unsafe.SliceData(src)), func(h driver.Stream) error {
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
	m := src.memory.manager
	return m.fenced(ctx, "copy.to_host", stream, []operand{{src.Tracking(), core.Read}}, unsafe.Pointer(unsafe.SliceData(dst)), func(h driver.Stream) error {
		return m.drv.CopyToHostAsync(asBytes(dst), src.Ptr(), h)
	})
}

// CopyOnDevice enqueues on stream a copy of src to the start of dst, fenced
// like any launch. Both must belong to one manager.
func CopyOnDevice[T Element](ctx context.Context, dst, src *Slice[T], stream core.StreamID) error {
	if err := needSlices("CopyOnDevice", dst, src); err != nil {
		return err
	}
	if dst.memory.manager != src.memory.manager {
		return &core.StreamMisuseError{Op: "CopyOnDevice", Stream: stream, Reason: "the slices belong to two managers: use CopyFromPeer between devices, and slices of one manager on one"}
	}
	if err := fits("CopyOnDevice", src.n, dst.n); err != nil || src.n == 0 {
		return err
	}
	m := dst.memory.manager
	return m.fenced(ctx, "copy.on_device", stream, []operand{{dst.Tracking(), core.Write}, {src.Tracking(), core.Read}}, nil, func(h driver.Stream) error {
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
	m := dst.memory.manager
	return m.fenced(ctx, "memset", stream, []operand{{dst.Tracking(), core.Write}}, nil, func(h driver.Stream) error {
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
	return out, src.memory.manager.streams.Synchronize(ctx, stream)
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

// fenced runs enqueue between the two halves of the launch protocol. host, if
// not nil, is pinned until the device has passed the work. Memory without a
// block is not fenced, as under a permissive recorder.
func (m *MemoryManager) fenced(ctx context.Context, name string, stream core.StreamID, blocks []operand, host unsafe.Pointer, enqueue func(driver.Stream) error) error {
	s, err := m.streams.table.resolve(name, stream)
	if err != nil {
		return err
	}
	var uses []core.Use
	for _, b := range blocks {
		if b.tracking.Kind == core.TrackedBlock {
			uses = append(uses, core.Use{Block: b.tracking.Block, Access: b.access})
		}
	}
	run := func(context.Context) error {
		err := enqueue(s.handle)
		if err != nil {
			return refusedUnlessSticky(err)
		}
		if host == nil {
			return nil
		}
		if err = s.keep(host, stream); err != nil {
			m.streams.table.lostHosts.add(host)
		}
		return err
	}
	if m.runtime == nil { // no launch keeps captures out
		if _, err := m.streams.table.enterUncaptured(name, stream); err != nil {
			return err
		}
		defer s.leave()
		return run(ctx)
	}
	return m.runtime.LaunchNamed(ctx, name, stream, uses, run)
}
