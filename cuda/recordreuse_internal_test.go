package cuda

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver/drivertest"
	"github.com/fencepost-gpu/fencepost/internal/path"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// A layer closes its part of a block's record when it is told of the release: until then no other block
// may have the record.
func TestARecordIsNotUsedAgainBeforeTheLayersHaveClosedIt(t *testing.T) {
	drv := &drivertest.Null{}
	streams := must.Get(NewStreamPool(drv, StreamPoolConfig{}))(t)
	async := must.Get(NewAsyncResource(drv, streams, AsyncConfig{ReapInterval: -1}))(t)
	req := core.Request{Bytes: 4096}
	told := 0
	async.Subscribe(path.Listener{Hear: func(rec *path.Record, b core.Block) {
		if told++; told > 20 {
			return
		}
		if async.streams.table.records.Find(b.ID) != nil {
			t.Errorf("%v is released and still found", b.ID)
		}
		next := must.Get(async.Allocate(t.Context(), req))(t)
		if rec == nil || async.streams.table.records.Find(next.ID) == rec {
			t.Errorf("the record of %v is %v's before the layers have closed it", b.ID, next.ID)
		}
		must.Get(async.Deallocate(t.Context(), next.ID))(t)
	}})
	b := must.Get(async.Allocate(t.Context(), req))(t)
	must.Get(async.Deallocate(t.Context(), b.ID))(t)
	for range 25 {
		must.Do(t, async.ReapPending(t.Context()))
	}
	if told < 20 {
		t.Errorf("told of %d blocks", told)
	}
}
