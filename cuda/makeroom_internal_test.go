package cuda

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// A stream is given up, and its lane forgotten, while an allocation on it waits for its turn
// to make room: no page is mapped for that lane, from which none would come back.
func TestNoRoomIsMadeInALaneThatIsForgotten(t *testing.T) {
	drv, err := sim.Open(sim.Config{})
	check := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	check(err)
	streams, err := NewStreamPool(drv, StreamPoolConfig{})
	check(err)
	r, err := NewPoolResource(drv, streams, PoolConfig{ReapInterval: -1})
	check(err)
	handle, err := drv.StreamCreate()
	check(err)
	lease, err := streams.Adopt(handle, "adopted")
	check(err)
	m := r.memory.(*lanes)
	s, err := streams.table.resolve("test", lease.ID())
	check(err)

	m.moving.Lock()
	allocated := make(chan error)
	go func() {
		_, err := r.Allocate(t.Context(), core.Request{Bytes: 1 << 20, Stream: lease.ID()})
		allocated <- err
	}()
	for { // until the allocation has its lane, so that only its turn is left
		s.Lock()
		opened := s.lane != nil
		s.Unlock()
		if opened {
			break
		}
	}
	check(lease.Release())
	m.forgetEmpty()
	m.moving.Unlock()
	if err := <-allocated; !errors.Is(err, core.ErrStreamMisuse) {
		t.Errorf("the allocation: %v", err)
	}
	if drift, err := r.Drift(); drift.Bytes != 0 || !drift.Known || err != nil {
		t.Errorf("drift %+v, %v", drift, err)
	}
	check(r.TrimPool(0))
	if held := r.Stats().Reserved; held != 0 {
		t.Errorf("%d bytes cannot be given back", held)
	}
	check(r.Close(t.Context()))
	check(streams.Close(t.Context()), drv.StreamDestroy(handle), drv.Close())
}
