package cuda

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
)

// MemoryManager allocates typed memory; see [Alloc]. With a runtime every
// slice is a block that recorders can fence. Without one it allocates around
// the runtime, for code that is not migrated yet: such memory has no
// identity, and strict recorders refuse it. It is the original's
// GpuMemoryManager and is safe for concurrent use.
type MemoryManager struct {
	drv     driver.Driver
	streams *StreamPool
	runtime *core.Runtime

	// limit bounds used, which is what was allocated around the runtime.
	limit uint64
	used  atomic.Uint64
}

// NewMemoryManager returns a manager that allocates through rt. What is nil is
// a [core.InvalidRequestError].
func NewMemoryManager(drv driver.Driver, streams *StreamPool, rt core.AnyRuntime) (*MemoryManager, error) {
	const op = "NewMemoryManager"
	if err := needDevice(op, drv, streams); err != nil {
		return nil, err
	}
	r, err := needRuntime(op, rt)
	if err != nil {
		return nil, err
	}
	return &MemoryManager{drv: drv, streams: streams, runtime: r}, nil
}

// NewUntrackedManager returns a manager without a runtime, that allocates at
// most limit bytes from the driver; 0 means no limit.
func NewUntrackedManager(drv driver.Driver, streams *StreamPool, limit uint64) *MemoryManager {
	return &MemoryManager{drv: drv, streams: streams, limit: limit}
}

// Runtime is the manager's runtime, nil if it has none.
func (m *MemoryManager) Runtime() *core.Runtime { return m.runtime }

// storage is the memory behind a slice and its views. It is given back when
// the last of them is freed.
type storage struct {
	manager *MemoryManager
	kind    core.TrackingKind
	block   core.Block
	refs    atomic.Int64
}

func (m *MemoryManager) allocate(ctx context.Context, bytes uint64, o AllocOptions) (*storage, error) {
	if bytes == 0 {
		return &storage{manager: m, kind: core.TrackedEmpty}, nil
	}
	if m.runtime == nil {
		return m.allocateUntracked(bytes, o)
	}
	b, err := m.runtime.Allocate(ctx, core.Request{Bytes: bytes, Stream: o.Stream, Tag: o.Tag, Claim: o.Claim, Isolated: o.Isolated})
	if err != nil {
		return nil, err
	}
	return &storage{manager: m, kind: core.TrackedBlock, block: b}, nil
}

func (m *MemoryManager) allocateUntracked(bytes uint64, o AllocOptions) (*storage, error) {
	if o.Isolated {
		return nil, core.UnsupportedError("Alloc of an isolated slice", "an untracked manager", "nothing says when the device is done with it; use a manager with a runtime")
	}
	o.Tag = o.Tag.OrUntagged()
	if err := m.charge(bytes, o.Tag); err != nil {
		return nil, err
	}
	ptr, err := m.drv.MemAlloc(bytes)
	if err != nil {
		m.used.Add(-bytes)
		return nil, err
	}
	return &storage{manager: m, kind: core.Untracked, block: core.Block{ID: core.BlockID{Ptr: ptr, Ordinal: m.drv.Ordinal()}, Requested: bytes, Bytes: bytes, Tag: o.Tag}}, nil
}

// charge takes bytes from the limit. It compares before it adds: to add first
// and check then would refuse others what fits meanwhile.
func (m *MemoryManager) charge(bytes uint64, tag core.Tag) error {
	limit := m.limit
	if limit == 0 {
		limit = math.MaxUint64
	}
	for {
		used := m.used.Load()
		if bytes > limit-used {
			return &core.OutOfBudgetError{Requested: bytes, Remaining: limit - used, Limit: limit, Live: used, Tag: tag}
		}
		if m.used.CompareAndSwap(used, used+bytes) {
			return nil
		}
	}
}

// free gives the memory back. An error leaves it allocated.
func (s *storage) free(ctx context.Context) error {
	switch s.kind {
	case core.TrackedBlock:
		_, err := s.manager.runtime.Deallocate(ctx, s.block.ID)
		return err
	case core.Untracked:
		if err := s.manager.drv.MemFree(s.block.ID.Ptr); err != nil {
			return err
		}
		s.manager.used.Add(-s.block.Bytes)
	}
	return nil
}
