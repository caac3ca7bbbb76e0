package cuda

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/driver"
	"github.com/fencepost-gpu/fencepost/internal/legible"
	"github.com/fencepost-gpu/fencepost/internal/refuse"
)

// Element is a type whose values a device holds as the host does.
type Element interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// AllocOptions say where and for whom typed memory is allocated.
type AllocOptions struct {
	// Stream orders the allocation and the free; the zero value is the
	// default stream.
	Stream core.StreamID
	// Tag accounts the memory; empty means "untagged".
	Tag core.Tag
	// Claim is the reservation to draw from; zero means none.
	Claim core.ClaimID
	// Isolated asks for memory of a mapping of its own; see
	// [core.Request.Isolated].
	Isolated bool
	// Account, if not nil, follows the memory until it is given back. That of a manager without
	// a runtime is not followed.
	Account *core.Account
}

// Slice is n values of T in device memory, or a view of some of another
// slice's. A view keeps the memory: it is given back when the slice and all
// its views are freed. It is the original's TrackedCudaSlice. Several goroutines may
// use a Slice; any one of them frees it, once. A nil slice is one that was not
// allocated: what needs one refuses it, and it has no length.
type Slice[T Element] struct {
	storage *storage
	offset  uint64
	n       int
	freed   atomic.Bool
}

var _ core.Tracked = (*Slice[byte])(nil)

// Alloc allocates n values of T, uninitialised. Zero values are an empty
// slice without memory. Errors are those of [core.Runtime.Allocate], and
// [core.InvalidRequestError] for a negative n or a size beyond 64 bits.
func Alloc[T Element](ctx context.Context, m *MemoryManager, n int, o AllocOptions) (*Slice[T], error) {
	if err := needManager("Alloc", m); err != nil {
		return nil, err
	}
	bytes, err := sizeOf[T]("Alloc", n)
	if err != nil {
		return nil, err
	}
	st, err := newStorage(ctx, m, bytes, o)
	if err != nil {
		return nil, err
	}
	st.refs.Store(1)
	return &Slice[T]{storage: st, n: n}, nil
}

// sizeOf is the size in bytes of n values.
func sizeOf[T Element](op string, n int) (uint64, error) {
	if n < 0 {
		return 0, &core.InvalidRequestError{Op: op, Field: "n", Reason: fmt.Sprintf("%d values: ask for none or more", n)}
	}
	high, bytes := bits.Mul64(uint64(n), elementBytes[T]())
	if high != 0 {
		return 0, &core.InvalidRequestError{Op: op, Field: "n", Reason: fmt.Sprintf("%d values of %d bytes do not fit a 64-bit size", n, elementBytes[T]())}
	}
	return bytes, nil
}

func elementBytes[T Element]() uint64 {
	var zero T
	return uint64(unsafe.Sizeof(zero))
}

// Len is the number of values.
func (s *Slice[T]) Len() int {
	if s == nil {
		return 0
	}
	return s.n
}

// Bytes is the size in bytes.
func (s *Slice[T]) Bytes() uint64 { return uint64(s.Len()) * elementBytes[T]() }

// Ptr is the device address of the first value; 0 for an empty slice.
func (s *Slice[T]) Ptr() uint64 {
	if s == nil || s.storage.block.ID.Generation == core.NoBytes {
		return 0
	}
	return s.storage.block.ID.Ptr + s.offset
}

// Arg is the address as a kernel argument.
func (s *Slice[T]) Arg() driver.Arg { return driver.Ptr(s.Ptr()) }

// Tag is the tag the memory was allocated under.
func (s *Slice[T]) Tag() core.Tag { return s.storage.block.Tag }

// BlockID is the block that the memory lies in, that of a view included, as
// [core.Tracked] says.
func (s *Slice[T]) BlockID() core.BlockID {
	var id core.BlockID
	if s != nil {
		if s.n == 0 {
			return core.BlockID{Generation: core.NoBytes}
		}
		id = s.storage.block.ID
	}
	if id.Generation == 0 {
		id.Generation = core.NoBlock
	}
	return id
}

// Use is a use of the block for [core.Runtime.Launch], or of the part that a view is; one of
// an empty slice is left out there, and one of untracked memory is refused.
func (s *Slice[T]) Use(access core.Access) core.Use {
	id := s.BlockID()
	if id.Generation == core.NoBlock {
		id.Generation = 0
	}
	use := core.Use{Block: id, Access: access, Slice: true}
	if s.Bytes() > 0 && s.Bytes() != s.storage.block.Requested {
		use.Offset, use.Bytes = s.offset, s.Bytes()
	}
	return use
}

// Runtime is the runtime that the memory belongs to, nil if it has none.
func (s *Slice[T]) Runtime() *core.Runtime {
	if s == nil {
		return nil
	}
	return s.storage.manager.runtime
}

// View returns the values from lo up to and excluding hi as a slice of their
// own. It must be freed too.
func (s *Slice[T]) View(lo, hi int) (*Slice[T], error) {
	if s == nil {
		return nil, missingHandle("View", "slice")
	}
	if s.freed.Load() {
		return nil, s.storage.freedError("Slice.View", "take views before it is freed")
	}
	if lo < 0 || hi < lo || hi > s.n {
		return nil, &core.InvalidRequestError{Op: "View", Field: "range", Reason: fmt.Sprintf("[%d, %d) does not lie in [0, %d)", lo, hi, s.n)}
	}
	s.storage.refs.Add(1)
	return &Slice[T]{storage: s.storage, offset: s.offset + uint64(lo)*elementBytes[T](), n: hi - lo}, nil
}

// Free gives the slice up, and the memory with the last of its views. It does
// not wait for the device. A second Free, or one after the job that the slice belonged to,
// frees nothing: it is a
// [core.UseAfterFreeError], and a finding without harm
// ([core.Finding.Harmless]). After a driver's error Free may be called again.
func (s *Slice[T]) Free(ctx context.Context) error {
	if s == nil {
		return missingHandle("Free", "slice")
	}
	if !s.freed.CompareAndSwap(false, true) {
		return s.storage.freedTwice()
	}
	if s.storage.refs.Add(-1) > 0 {
		return nil
	}
	if s.storage.freedByBlock() {
		return s.storage.freedTwice()
	}
	if err := s.storage.free(ctx); err != nil {
		s.storage.refs.Add(1)
		s.freed.Store(false)
		return err
	}
	return nil
}

// freedError is the error of an operation on a slice or view that was freed. It
// names the block, where there is one.
func (s *storage) freedError(op, advice string) error {
	if !s.hasBlock() {
		return fmt.Errorf("%s: the slice or view tagged %s was freed before; %s: %w", op,
			legible.Value(s.block.Tag.OrUntagged()), advice, core.ErrUseAfterFree)
	}
	return fmt.Errorf("%w: the slice or view was freed before; %s", &core.UseAfterFreeError{Op: op, Generation: s.block.ID.Generation, Block: s.block.ID,
		State: s.manager.runtime.State(s.block.ID), Tag: s.block.Tag}, advice)
}

// freedByBlock reports whether the block was freed by its identity, as a job does at its
// end: the slice has nothing left to free.
func (s *storage) freedByBlock() bool {
	return s.hasBlock() && s.manager.runtime.State(s.block.ID) != core.Live
}

// freedTwice reports that a slice or view is freed again by the caller of the
// caller, and returns the error for it. What has no block is an error only.
func (s *storage) freedTwice() error {
	err := s.freedError("Slice.Free", "nothing is freed twice: free it in one place, by an explicit call or by a deferred one")
	if s.hasBlock() {
		victim := s.block
		victim.State = s.manager.runtime.State(victim.ID)
		s.manager.runtime.ReportDoubleFree(victim,
			fmt.Sprintf("a slice of generation %s tagged %q was freed again; nothing was freed twice", victim.ID.Generation, victim.Tag), err, core.CaptureStack(2))
	}
	return err
}

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
	r, err := refuse.NoRuntime(op, rt)
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

// charge takes bytes from the limit. It compares before it adds: to add first
// and check then would refuse others what fits meanwhile.
func (m *MemoryManager) charge(bytes uint64, tag core.Tag) error {
	limit := cmp.Or(m.limit, math.MaxUint64)
	for {
		used := m.used.Load()
		if bytes > limit-used {
			return refuse.Budget(&core.OutOfBudgetError{Requested: bytes, Remaining: limit - used, Limit: m.limit, Live: used,
				Tag: tag})
		}
		if m.used.CompareAndSwap(used, used+bytes) {
			return nil
		}
	}
}

// storage is the memory behind a slice and its views. It is given back when
// the last of them is freed.
type storage struct {
	manager *MemoryManager
	block   core.Block
	refs    atomic.Int64
}

// hasBlock reports whether it is a block of a runtime.
func (s *storage) hasBlock() bool {
	return s.block.ID.Generation != 0 && s.block.ID.Generation != core.NoBytes
}

func newStorage(ctx context.Context, m *MemoryManager, bytes uint64, o AllocOptions) (*storage, error) {
	if bytes == 0 {
		return &storage{manager: m, block: core.Block{ID: core.BlockID{Generation: core.NoBytes}}}, nil
	}
	if m.runtime == nil {
		return newUntracked(m, bytes, o)
	}
	b, err := m.runtime.Allocate(ctx, core.Request{Bytes: bytes, Stream: o.Stream, Tag: o.Tag, Claim: o.Claim, Isolated: o.Isolated, Account: o.Account})
	if err != nil {
		return nil, err
	}
	return &storage{manager: m, block: b}, nil
}

func newUntracked(m *MemoryManager, bytes uint64, o AllocOptions) (*storage, error) {
	if o.Isolated {
		return nil, refuse.Unsupported("Alloc of an isolated slice", "an untracked manager", "nothing says when the device is done with it; use a manager with a runtime")
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
	return &storage{manager: m, block: core.Block{ID: core.BlockID{Ptr: ptr, Ordinal: m.drv.Ordinal()}, Requested: bytes, Bytes: bytes, Tag: o.Tag}}, nil
}

// free gives the memory back. An error leaves it allocated.
func (s *storage) free(ctx context.Context) error {
	switch s.block.ID.Generation {
	case core.NoBytes:
		return nil
	case 0:
		if err := s.manager.drv.MemFree(s.block.ID.Ptr); err != nil {
			return err
		}
		s.manager.used.Add(-s.block.Bytes)
		return nil
	}
	_, err := s.manager.runtime.Deallocate(ctx, s.block.ID)
	return err
}

// Column is device memory without a type, owned or of another framework. External
// columns have no identity in the runtime: strict recorders refuse them and
// permissive ones skip them, so their user synchronises with the producer. It
// is the original's CudaColumn.
type Column struct {
	tracked core.Tracked // nil for another framework's memory
	ptr     uint64
	bytes   uint64
	release func()
	done    atomic.Bool
}

var _ core.Tracked = (*Column)(nil)

// OwnedColumn makes a column of a slice; the slice stays the caller's to free.
func OwnedColumn[T Element](s *Slice[T]) *Column {
	return &Column{tracked: s, ptr: s.Ptr(), bytes: s.Bytes()}
}

// External is memory of another framework.
type External struct {
	// Ptr and Bytes are where it lies on the device.
	Ptr, Bytes uint64
	// Release tells the producer that the memory is not needed any more: the
	// deleter of a DLManagedTensor, the release of an ArrowArray. May be nil.
	Release func()
}

// ExternalColumn makes a column of an imported DLPack tensor, of an Arrow device array
// or of other memory that another framework owns.
func ExternalColumn(e External) *Column {
	return &Column{ptr: e.Ptr, bytes: e.Bytes, release: e.Release}
}

// IsExternal reports whether it is another framework's.
func (c *Column) IsExternal() bool { return c.tracked == nil }

// Ptr is the device address, Bytes the size.
func (c *Column) Ptr() uint64 { return c.ptr }

// Bytes is the size in bytes.
func (c *Column) Bytes() uint64 { return c.bytes }

// BlockID is the block that the memory lies in; see [core.Tracked].
func (c *Column) BlockID() core.BlockID {
	if c.IsExternal() {
		return core.BlockID{Generation: core.NoBlock}
	}
	return c.tracked.BlockID()
}

// Release calls the producer's release, once, of an external column. The
// caller makes sure that the device is done with it.
func (c *Column) Release() {
	if c.release != nil && c.done.CompareAndSwap(false, true) {
		c.release()
	}
}
