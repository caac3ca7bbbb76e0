package libcuda_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/cuda"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/cuda/libcuda"
)

func TestADeviceConforms(t *testing.T) {
	for name, strict := range map[string]int{"calls on any thread": 0, "a context for every call": 1} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.set("strict", strict)
			l := f.load()
			drivertest.Conformance(t, func(t *testing.T) driver.Driver {
				d, err := l.Open(0)
				must(t, err)
				return d
			})
		})
	}
}

func TestTheAsyncResourceConforms(t *testing.T) {
	coretest.Run(t, func(t *testing.T) coretest.Subject {
		f := newFake(t)
		d := f.open()
		streams, err := cuda.NewStreamPool(d, cuda.StreamPoolConfig{Max: 64})
		must(t, err)
		r, err := cuda.NewAsyncResource(d, streams, cuda.AsyncConfig{})
		must(t, err)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_ = r.Close(ctx) // a case may end with blocks left
			_ = streams.Close(ctx)
		})
		return coretest.Subject{
			Resource: r,
			Features: core.UseTracking | core.StreamOrdered | core.Isolation,
			Streams: func(t testing.TB) core.StreamID {
				l, err := streams.Acquire(context.Background(), "conformance")
				must(t, err)
				t.Cleanup(func() { _ = l.Release() })
				return l.ID()
			},
			Device: &bytesOf{fake: f, device: d, streams: streams}, Capacity: 4 << 30, MaxBlock: 64 << 20,
			FailNextFree: func() { f.fail("cuMemFreeAsync", 1, driver.InvalidValue) },
		}
	})
}

// bytesOf lets the suite touch the fake's memory.
type bytesOf struct {
	*fake
	device  *libcuda.Device
	streams *cuda.StreamPool

	mu   sync.Mutex
	kept [][]byte // the fake reads it when the stream comes to it
}

func (b *bytesOf) handle(id core.StreamID) driver.Stream {
	h, err := b.streams.Handle(id)
	must(b, err)
	return h
}

func (b *bytesOf) Write(stream core.StreamID, ptr uint64, src []byte) error {
	src = bytes.Clone(src)
	b.mu.Lock()
	b.kept = append(b.kept, src)
	b.mu.Unlock()
	return b.device.CopyToDeviceAsync(ptr, src, b.handle(stream))
}

func (b *bytesOf) Read(stream core.StreamID, ptr uint64, dst []byte) error {
	return b.device.CopyToHostAsync(dst, ptr, b.handle(stream))
}

func (b *bytesOf) Stall(stream core.StreamID) func() {
	h := b.handle(stream)
	b.hold(h, 1)
	return func() { b.hold(h, 0) }
}

func (b *bytesOf) Sync(stream core.StreamID) error {
	return b.device.StreamSynchronize(b.handle(stream))
}
