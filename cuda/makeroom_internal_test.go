package cuda

import (
	"errors"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// A stream is given up, and its arena forgotten, while an allocation on it waits for its turn
// to make room: no page is mapped for that arena, from which none would come back.
func TestNoRoomIsMadeInAnArenaThatIsForgotten(t *testing.T) {
	drv := must.Get(sim.Open(sim.Config{}))(t)
	streams := must.Get(NewStreamPool(drv, StreamPoolConfig{}))(t)
	r := must.Get(NewPoolResource(drv, streams, PoolConfig{ReapInterval: -1}))(t)
	handle := must.Get(drv.StreamCreate())(t)
	lease := must.Get(streams.Adopt(handle, "adopted"))(t)
	s := must.Get(streams.table.resolve("test", lease.ID()))(t)
	m := r.memory.(*arenas)

	m.growing.Lock()
	m.moving.Lock()
	allocated := make(chan error)
	go func() {
		_, err := r.Allocate(t.Context(), core.Request{Bytes: 1 << 20, Stream: lease.ID()})
		allocated <- err
	}()
	for { // until the allocation has its arena, so that only its turn is left
		s.Lock()
		opened := s.arena != nil
		s.Unlock()
		if opened {
			break
		}
	}
	must.Do(t, lease.Release())
	m.forgetEmpty()
	m.moving.Unlock()
	m.unlockGrowing()
	if err := <-allocated; !errors.Is(err, core.ErrStreamMisuse) {
		t.Errorf("the allocation: %v", err)
	}
	if drift, err := r.Drift(); drift.Bytes != 0 || !drift.Known || err != nil {
		t.Errorf("drift %+v, %v", drift, err)
	}
	must.Do(t, r.TrimPool(0))
	if held := r.Stats().Reserved; held != 0 {
		t.Errorf("%d bytes cannot be given back", held)
	}
	must.Do(t, r.Close(t.Context()))
	must.Do(t, streams.Close(t.Context()), drv.StreamDestroy(handle), drv.Close())
}
