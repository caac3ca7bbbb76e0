package cuda

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/deadline"
	"github.com/fencepost-gpu/fencepost/internal/fence"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

// HostBuffer is n values of T in page-locked host memory. Copies from and to
// it are truly asynchronous, unlike those of Go's memory, which a driver
// stages, and kernels reach it at [HostBuffer.Ptr]. It lies outside Go's heap.
//
// The runtime knows of the copies, and of nothing else: what a kernel does
// with a buffer it neither fences nor waits for. Synchronise with such a
// kernel before the values are touched and before Free. A buffer that is not
// freed stays until the device's context ends; no budget counts it and no leak
// report names it. Methods other than Free are safe for concurrent use.
type HostBuffer[T Element] struct {
	drv   driver.Driver
	table *streamTable
	// runtime is told of a second free; nil if there is none.
	runtime *core.Runtime
	mem     driver.HostMemory
	n       int
	state   atomic.Int32
	// result is what the driver's free will say, once that was asked for; it
	// belongs to the call that set the state to freeing.
	result chan error
}

// The states of a host buffer. One is leaving from when the driver was asked
// to free it: the memory may be gone at any moment.
const (
	hostLive int32 = iota
	hostFreeing
	hostLeaving
	hostFreed
)

// AllocHost allocates n values of T of page-locked memory on m's device,
// uninitialised. Zero values are an empty buffer without memory. It may block
// in the driver, and costs far more than Go's memory does: keep buffers.
// Errors are [core.DriverError], [core.InvalidRequestError] for a negative
// n or a size beyond 64 bits, and one that matches [core.ErrClosed] once the
// stream pool is being closed.
func AllocHost[T Element](m *MemoryManager, n int) (*HostBuffer[T], error) {
	if err := needManager("AllocHost", m); err != nil {
		return nil, err
	}
	if err := needPool("AllocHost", m.streams); err != nil {
		return nil, err
	}
	bytes, err := sizeOf[T]("AllocHost", n)
	if err != nil {
		return nil, err
	}
	if m.streams.closed.Load() {
		return nil, fmt.Errorf("AllocHost refused: the stream pool is %w", core.ErrClosed)
	}
	b := &HostBuffer[T]{drv: m.drv, table: m.streams.table, runtime: m.runtime, n: n}
	if n > 0 {
		b.mem, err = m.drv.HostAlloc(bytes)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Len is the number of values.
func (b *HostBuffer[T]) Len() int { return b.n }

// Bytes is the size in bytes.
func (b *HostBuffer[T]) Bytes() uint64 { return uint64(b.n) * elementBytes[T]() }

// Values are the values themselves, for the host and for [CopyToDevice] and
// [CopyToHost], which take any part of them. The slice must not be touched
// after Free; from then on Values is nil.
func (b *HostBuffer[T]) Values() []T {
	if b.n == 0 || b.state.Load() != hostLive {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b.mem.Bytes))), b.n)
}

// Ptr is the address for kernels; 0 for an empty buffer.
func (b *HostBuffer[T]) Ptr() uint64 { return b.mem.DevicePtr }

// Arg is the address as a kernel argument.
func (b *HostBuffer[T]) Arg() driver.Arg { return driver.Ptr(b.mem.DevicePtr) }

// Free gives the buffer back when the copies under way that use it are done.
// It waits for them, and for the driver, which may wait for all work of the
// device, until ctx ends. After an error it may be called again. A second
// Free is an error that matches [core.ErrUseAfterFree], and a harmless
// finding ([core.Finding.Harmless]). It must not be called
// while a call that was given the values has not returned.
func (b *HostBuffer[T]) Free(ctx context.Context) error {
	if b == nil {
		return missingHandle("HostBuffer.Free", "buffer")
	}
	if err := refuse.NoContext(ctx, "HostBuffer.Free"); err != nil {
		return err
	}
	if !b.state.CompareAndSwap(hostLive, hostFreeing) && !b.state.CompareAndSwap(hostLeaving, hostFreeing) {
		return hostFreedTwice(b.runtime, b.Bytes())
	}
	next, err := b.free(ctx)
	b.state.Store(next)
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

// free returns the state that the buffer is in then.
func (b *HostBuffer[T]) free(ctx context.Context) (int32, error) {
	if b.n == 0 {
		return hostFreed, nil
	}
	if b.result == nil {
		low := uintptr(unsafe.Pointer(unsafe.SliceData(b.mem.Bytes)))
		if err := deadline.Poll(ctx, func() (bool, error) { return b.table.copiesDone(low, low+uintptr(b.Bytes())) }); err != nil {
			return hostLive, fmt.Errorf("HostBuffer.Free: copies that use the buffer are not known to be done: %w", err)
		}
		b.result = make(chan error, 1)
		go func(result chan<- error) { result <- b.drv.HostFree(b.mem) }(b.result)
	}
	select {
	case err := <-b.result:
		b.result = nil
		if err != nil {
			return hostLive, err
		}
		return hostFreed, nil
	case <-ctx.Done():
		return hostLeaving, fmt.Errorf("HostBuffer.Free: the driver has not freed the buffer yet: %w; call Free again to wait for it", ctx.Err())
	}
}

// pin is a host buffer that a copy under way reads or writes.
type pin struct {
	event  *fence.Point
	pinner *runtime.Pinner
	host   unsafe.Pointer
}

// pinners keeps every pinner in use reachable, because Go ends the program
// when it collects one that still pins: a pool that is dropped without Close,
// or a device that is lost, must not do that.
var pinners sync.Map

// newPinner pins memory of Go's; of other memory it does nothing.
func newPinner(host unsafe.Pointer) *runtime.Pinner {
	p := new(runtime.Pinner)
	p.Pin((*byte)(host))
	pinners.Store(p, nil)
	return p
}

func dropPinner(p *runtime.Pinner) {
	p.Unpin()
	pinners.Delete(p)
}

// pinHost keeps host memory in place until what is enqueued on s now is completed.
// If that cannot be told the memory stays pinned for ever.
func (s *stream) pinHost(host unsafe.Pointer, lease core.StreamID) error {
	pinner := newPinner(host)
	if err := s.addPin(pin{pinner: pinner, host: host}, lease); err != nil {
		if errors.Is(err, core.ErrStreamMisuse) {
			return err // a synchronisation would invalidate the capture
		}
		if syncErr := s.drv.StreamSynchronize(s.Handle()); syncErr != nil {
			return errors.Join(err, syncErr)
		}
		dropPinner(pinner)
	}
	return nil
}

func (s *stream) addPin(p pin, lease core.StreamID) (err error) {
	s.Lock()
	defer s.Unlock()
	s.unpin()
	if err := s.RefuseCaptured("copy", lease); err != nil {
		return err
	}
	if p.event, err = s.Record(lease); err == nil {
		s.pins = append(s.pins, p)
		s.pinned.Store(int64(len(s.pins)))
	}
	return err
}

// unpin lets go of the buffers that the device is done with; the stream must be
// locked.
func (s *stream) unpin() {
	n := 0
	for n < len(s.pins) {
		p := s.pins[n]
		if done, err := s.QueryCompleted(p.event); err != nil || !done {
			break
		}
		dropPinner(p.pinner)
		p.event.Release()
		n++
	}
	left := copy(s.pins, s.pins[n:])
	clear(s.pins[left:])
	s.pins = s.pins[:left]
	s.pinned.Store(int64(left))
}

// errHostLost is why page-locked memory cannot be freed any more.
var errHostLost = errors.New("a copy of the buffer could not be fenced, so the device may use it until it is reset")

// lostHosts are addresses of host memory that a copy may use for an unknown time,
// because the driver let nothing be recorded behind it.
type lostHosts struct {
	mu    sync.Mutex
	hosts []uintptr
}

func (l *lostHosts) add(host unsafe.Pointer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts = append(l.hosts, uintptr(host))
}

func (l *lostHosts) within(low, high uintptr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.hosts, func(host uintptr) bool { return host >= low && host < high })
}

// copiesDone reports whether no copy under way uses host memory that begins
// in [low, high). The pins of the streams say which do: a copy is pinned under
// its own first address.
func (t *streamTable) copiesDone(low, high uintptr) (bool, error) {
	if t.lostHosts.within(low, high) {
		return false, errHostLost
	}
	for _, s := range t.everyStream() {
		if done, err := s.copiesDone(low, high); !done || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (s *stream) copiesDone(low, high uintptr) (bool, error) {
	s.Lock()
	defer s.Unlock()
	s.unpin()
	for _, p := range s.pins {
		if host := uintptr(p.host); host >= low && host < high {
			_, err := s.QueryCompleted(p.event) // what unpin could not say
			return false, err
		}
	}
	return true, nil
}
